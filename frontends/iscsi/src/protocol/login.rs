//! Login: from the first PDU of a connection to the full feature phase.
//!
//! # Mechanism
//! A [`Login`] takes one request after the other and gives the reply and what comes next. It knows
//! no sockets and no volumes: it asks a [`Gatekeeper`] who may log in with which secrets. The
//! stages are security (0), operational (1) and full feature (3); an initiator asks for the next
//! one by the transit bit, and gets it when the stage is done here too. An initiator that needs
//! CHAP and begins with the operational stage is refused.
//!
//! # Invariants
//! - No key of the operational stage changes anything before the initiator has proved its secret.
//! - Text in several PDUs, and the number of requests of a login, are bounded.

use crate::protocol::chap::{self, Algorithm};
use crate::protocol::parameters::{Parameters, RECEIVED_BYTES_MAX};
use crate::protocol::pdu::{Pdu, replies, requests};
use crate::protocol::text::{Keys, TEXT_BYTES_MAX, binary, hexadecimal_of};
use crate::scsi::fields::{put, u16_at};

/// Most requests of one login. A guess: initiators send two to five.
const REQUESTS_MAX: u32 = 32;

/// The target portal group, of which there is one.
pub const PORTAL_GROUP: &str = "1";

/// Longest iSCSI name (RFC 7143, 4.2.7.1).
const NAME_BYTES_MAX: usize = 223;

const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;

/// Why a login is refused, as status class and detail (RFC 7143, 11.13.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginRefusal {
    /// What it sent makes no sense.
    InitiatorError,
    /// A secret is missing or wrong.
    Authentication,
    /// This initiator may not use this target.
    Forbidden,
    /// There is no such target.
    NotFound,
    /// Another version of the protocol.
    Version,
    /// A session has one connection.
    TooManyConnections,
    /// A name is missing.
    MissingParameter,
    /// The kind of session is not known.
    SessionType,
    /// The request is none of a login.
    InvalidRequest,
    /// The volume cannot be used now.
    Unavailable,
    /// There are too many sessions.
    NoResources,
}

/// The secrets of CHAP.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Secrets {
    /// The name that the initiator gives.
    pub user: String,
    /// Its secret.
    pub secret: String,
    /// The name and secret of the target, for initiators that ask it to prove itself.
    pub target: Option<(String, String)>,
}

/// What an initiator needs to log in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// Nothing.
    Open,
    /// CHAP with these.
    Chap(Secrets),
    /// It may not.
    Refused(LoginRefusal),
}

/// Decides who may log in.
pub trait Gatekeeper {
    /// An initiator wants to use a target, or to discover targets.
    fn admit(&self, initiator: &str, target: Option<&str>) -> Admission;

    /// Bytes that nobody can guess.
    fn random(&self, bytes: &mut [u8]);
}

/// What was agreed on when a login ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedIn {
    /// The initiator's name.
    pub initiator: String,
    /// The target; none in a discovery session.
    pub target: Option<String>,
    /// Its part of the session's name.
    pub isid: [u8; 6],
    /// The number of the connection.
    pub connection: u16,
    /// The number of the first command.
    pub command_number: u32,
    /// The number of the next status.
    pub status_number: u32,
    /// The keys.
    pub parameters: Parameters,
}

/// What follows a login request.
#[derive(Debug)]
pub enum Step {
    /// The reply; more requests come.
    More(Pdu),
    /// All is agreed on. The reply is sent when there is a session, whose number
    /// [`set_session`] puts in.
    Done(Box<LoggedIn>, Pdu),
    /// It failed: the reply, after which the connection is closed.
    Failed(Pdu),
}

/// How far an initiator has proved itself.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Proof {
    /// CHAP must be chosen.
    Method(Secrets),
    /// CHAP was chosen: the algorithm comes.
    Algorithm(Secrets),
    /// This was asked.
    Challenged(Secrets, Challenge),
    /// Nothing is left to prove.
    Done,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Challenge {
    algorithm: Algorithm,
    identifier: u8,
    bytes: Vec<u8>,
}

#[derive(Debug, Clone)]
struct Names {
    initiator: String,
    target: Option<String>,
    isid: [u8; 6],
}

/// A login under way.
#[derive(Debug)]
pub struct Login {
    stage: Option<u8>,
    proof: Proof,
    text: Vec<u8>,
    names: Option<Names>,
    parameters: Parameters,
    requests: u32,
    status_number: u32,
    has_declared: bool,
}

impl Default for Login {
    fn default() -> Login {
        Login {
            stage: None,
            proof: Proof::Done,
            text: Vec::new(),
            names: None,
            parameters: Parameters::default(),
            requests: 0,
            status_number: 0,
            has_declared: false,
        }
    }
}

impl Login {
    /// Takes a request.
    pub fn step(&mut self, request: &Pdu, gatekeeper: &dyn Gatekeeper) -> Step {
        if self.requests == 0 {
            self.status_number = request.u32(28);
        }
        self.requests += 1;
        let answered = match self.requests > REQUESTS_MAX {
            true => Err(LoginRefusal::InitiatorError),
            false => self.answer(request, gatekeeper),
        };
        answered.unwrap_or_else(|refusal| Step::Failed(self.refuse(request, refusal)))
    }

    /// The reply that refuses a login.
    pub fn refuse(&mut self, request: &Pdu, refusal: LoginRefusal) -> Pdu {
        let mut reply = self.reply(request, 0, Vec::new());
        put(&mut reply.header, 36, &refusal.number().to_be_bytes());
        reply
    }

    fn answer(&mut self, request: &Pdu, gatekeeper: &dyn Gatekeeper) -> Result<Step, LoginRefusal> {
        if request.opcode() != requests::LOGIN || !request.is_immediate() {
            return Err(LoginRefusal::InvalidRequest);
        }
        if request.header[3] != 0 {
            return Err(LoginRefusal::Version);
        }
        let (flags, stage) = (request.header[1], (request.header[1] >> 2) & 3);
        let (transits, continues) = (flags & 0x80 != 0, flags & 0x40 != 0);
        let is_expected = self.stage.is_none_or(|expected| expected == stage);
        let is_stage = matches!(stage, SECURITY | OPERATIONAL) && is_expected;
        if !is_stage || (transits && continues) {
            return Err(LoginRefusal::InitiatorError);
        }
        self.stage = Some(stage);
        if self.text.len() + request.data.len() > TEXT_BYTES_MAX {
            return Err(LoginRefusal::InitiatorError);
        }
        self.text.extend_from_slice(&request.data);
        if continues {
            let reply = self.reply(request, stage << 2, Vec::new());
            return Ok(Step::More(reply));
        }
        let keys = Keys::parse(&std::mem::take(&mut self.text));
        let keys = keys.map_err(|_| LoginRefusal::InitiatorError)?;
        let mut answer = Keys::default();
        if self.names.is_none() {
            self.begin(request, &keys, gatekeeper)?;
            if self.target().is_some() {
                answer.add("TargetPortalGroupTag", PORTAL_GROUP);
            }
        }
        match stage {
            SECURITY => self.prove(&keys, &mut answer, gatekeeper)?,
            _ if self.proof != Proof::Done => return Err(LoginRefusal::Authentication),
            _ => {}
        }
        if self.proof == Proof::Done {
            self.negotiate(stage, &keys, &mut answer)?;
        }
        self.follow(request, stage, transits, &answer)
    }

    /// The reply, with the next stage where that was asked for and this one is done.
    fn follow(
        &mut self,
        request: &Pdu,
        stage: u8,
        transits: bool,
        answer: &Keys,
    ) -> Result<Step, LoginRefusal> {
        let next = request.header[1] & 3;
        if !transits || self.proof != Proof::Done {
            let reply = self.reply(request, stage << 2, answer.encode());
            return Ok(Step::More(reply));
        }
        let is_next = matches!(next, OPERATIONAL | FULL_FEATURE) && next > stage;
        if !is_next {
            return Err(LoginRefusal::InitiatorError);
        }
        let reply = self.reply(request, 0x80 | stage << 2 | next, answer.encode());
        self.stage = Some(next);
        match (next, &self.names) {
            (FULL_FEATURE, Some(names)) => {
                let logged_in = LoggedIn {
                    initiator: names.initiator.clone(),
                    target: names.target.clone(),
                    isid: names.isid,
                    connection: u16_at(&request.header, 20),
                    command_number: request.command_number(),
                    status_number: self.status_number,
                    parameters: self.parameters,
                };
                Ok(Step::Done(Box::new(logged_in), reply))
            }
            _ => Ok(Step::More(reply)),
        }
    }

    fn target(&self) -> Option<&str> {
        self.names.as_ref()?.target.as_deref()
    }

    /// The first request names the initiator and the target.
    fn begin(
        &mut self,
        request: &Pdu,
        keys: &Keys,
        gatekeeper: &dyn Gatekeeper,
    ) -> Result<(), LoginRefusal> {
        if u16_at(&request.header, 14) != 0 {
            // A connection more for a session.
            return Err(LoginRefusal::TooManyConnections);
        }
        let name = |key: &str| {
            let name = keys.value(key).ok_or(LoginRefusal::MissingParameter)?;
            let is_name = !name.is_empty()
                && name.len() <= NAME_BYTES_MAX
                && name
                    .chars()
                    .all(|c| !c.is_whitespace() && !c.is_control() && c != ',');
            match is_name {
                true => Ok(name.to_lowercase()),
                false => Err(LoginRefusal::InitiatorError),
            }
        };
        let initiator = name("InitiatorName")?;
        let target = match keys.value("SessionType").unwrap_or("Normal") {
            "Normal" => Some(name("TargetName")?),
            "Discovery" => None,
            _ => return Err(LoginRefusal::SessionType),
        };
        self.proof = match gatekeeper.admit(&initiator, target.as_deref()) {
            Admission::Open => Proof::Done,
            Admission::Chap(secrets) => Proof::Method(secrets),
            Admission::Refused(refusal) => return Err(refusal),
        };
        let mut isid = [0; 6];
        isid.copy_from_slice(&request.header[8..14]);
        self.names = Some(Names {
            initiator,
            target,
            isid,
        });
        Ok(())
    }

    /// The security stage: one step of CHAP.
    fn prove(
        &mut self,
        keys: &Keys,
        answer: &mut Keys,
        gatekeeper: &dyn Gatekeeper,
    ) -> Result<(), LoginRefusal> {
        let offers = |method: &str| {
            let offered = keys.value("AuthMethod");
            offered.is_some_and(|all| all.split(',').any(|one| one == method))
        };
        match self.proof.clone() {
            Proof::Done => {
                if keys.value("AuthMethod").is_some() {
                    if !offers("None") {
                        return Err(LoginRefusal::Authentication);
                    }
                    answer.add("AuthMethod", "None");
                }
            }
            Proof::Method(secrets) => {
                if keys.value("AuthMethod").is_some() {
                    if !offers("CHAP") {
                        return Err(LoginRefusal::Authentication);
                    }
                    answer.add("AuthMethod", "CHAP");
                    self.proof = Proof::Algorithm(secrets);
                }
            }
            Proof::Algorithm(secrets) => {
                let offered = keys.value("CHAP_A").ok_or(LoginRefusal::Authentication)?;
                let algorithm = Algorithm::choose(offered);
                let algorithm = algorithm.ok_or(LoginRefusal::Authentication)?;
                let mut bytes = vec![0; chap::CHALLENGE_BYTES];
                let mut identifier = [0];
                gatekeeper.random(&mut bytes);
                gatekeeper.random(&mut identifier);
                answer.add("CHAP_A", algorithm.number());
                answer.add("CHAP_I", identifier[0].to_string());
                answer.add("CHAP_C", hexadecimal_of(&bytes));
                let challenge = Challenge {
                    algorithm,
                    identifier: identifier[0],
                    bytes,
                };
                self.proof = Proof::Challenged(secrets, challenge);
            }
            Proof::Challenged(secrets, challenge) => {
                self.check(keys, answer, &secrets, &challenge)?;
                self.proof = Proof::Done;
            }
        }
        Ok(())
    }

    /// The response of the initiator, and ours where it asks for one.
    fn check(
        &self,
        keys: &Keys,
        answer: &mut Keys,
        secrets: &Secrets,
        challenge: &Challenge,
    ) -> Result<(), LoginRefusal> {
        let refused = LoginRefusal::Authentication;
        let algorithm = challenge.algorithm;
        let response = keys.value("CHAP_R").and_then(binary).ok_or(refused)?;
        let expected = algorithm.response(challenge.identifier, &secrets.secret, &challenge.bytes);
        let is_user = keys.value("CHAP_N") == Some(&secrets.user);
        if !chap::is_same(&response, &expected) || !is_user {
            return Err(refused);
        }
        let Some(asked) = keys.value("CHAP_C") else {
            return Ok(());
        };
        let asked = binary(asked).ok_or(refused)?;
        let identifier: u8 = keys
            .value("CHAP_I")
            .and_then(|text| text.parse().ok())
            .ok_or(refused)?;
        // A challenge that is our own would have us compute the response to it.
        let is_reflected = asked == challenge.bytes;
        let (name, secret) = secrets.target.as_ref().ok_or(refused)?;
        if is_reflected || asked.len() > chap::CHALLENGE_BYTES_MAX || *secret == secrets.secret {
            return Err(refused);
        }
        answer.add("CHAP_N", name.clone());
        let response = algorithm.response(identifier, secret, &asked);
        answer.add("CHAP_R", hexadecimal_of(&response));
        Ok(())
    }

    /// The operational keys; some initiators send them in the security stage already.
    fn negotiate(&mut self, stage: u8, keys: &Keys, answer: &mut Keys) -> Result<(), LoginRefusal> {
        if !self.parameters.negotiate(keys, answer) {
            return Err(LoginRefusal::InitiatorError);
        }
        if stage == OPERATIONAL && !self.has_declared {
            self.has_declared = true;
            answer.add("MaxRecvDataSegmentLength", RECEIVED_BYTES_MAX.to_string());
        }
        Ok(())
    }

    fn reply(&mut self, request: &Pdu, flags: u8, text: Vec<u8>) -> Pdu {
        let mut reply = Pdu::reply(replies::LOGIN, request.task_tag())
            .with_u8(1, flags)
            .with_u32(24, self.status_number)
            .with_u32(28, request.command_number())
            .with_u32(32, request.command_number())
            .with_data(text);
        let names = request.header[8..16].to_vec();
        put(&mut reply.header, 8, &names);
        self.status_number = self.status_number.wrapping_add(1);
        reply
    }
}

impl LoginRefusal {
    /// Status class and detail.
    fn number(self) -> u16 {
        match self {
            LoginRefusal::InitiatorError => 0x0200,
            LoginRefusal::Authentication => 0x0201,
            LoginRefusal::Forbidden => 0x0202,
            LoginRefusal::NotFound => 0x0203,
            LoginRefusal::Version => 0x0205,
            LoginRefusal::TooManyConnections => 0x0206,
            LoginRefusal::MissingParameter => 0x0207,
            LoginRefusal::SessionType => 0x0209,
            LoginRefusal::InvalidRequest => 0x020b,
            LoginRefusal::Unavailable => 0x0301,
            LoginRefusal::NoResources => 0x0302,
        }
    }
}

/// Puts the number of a session into the last reply of its login.
pub fn set_session(reply: &mut Pdu, session: u16) {
    put(&mut reply.header, 14, &session.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Gate(Admission);

    impl Gatekeeper for Gate {
        fn admit(&self, _: &str, target: Option<&str>) -> Admission {
            match target {
                Some("iqn.t") | None => self.0.clone(),
                Some(_) => Admission::Refused(LoginRefusal::NotFound),
            }
        }

        fn random(&self, bytes: &mut [u8]) {
            bytes.fill(9);
        }
    }

    fn request(flags: u8, text: &str) -> Pdu {
        let text = text.replace(' ', "\0") + "\0";
        let mut request = Pdu::new(0x43)
            .with_u8(1, flags)
            .with_u32(16, 5)
            .with_u32(24, 100)
            .with_data(text.into_bytes());
        put(&mut request.header, 8, &[0x40, 0, 1, 2, 3, 4]);
        request
    }

    fn status(step: &Step) -> u16 {
        match step {
            Step::Failed(reply) => u16_at(&reply.header, 36),
            _ => 0,
        }
    }

    const NAMES: &str = "InitiatorName=iqn.i TargetName=iqn.t";

    #[test]
    fn a_login_in_one_request_is_done() {
        let (mut login, gate) = (Login::default(), Gate(Admission::Open));
        let step = login.step(&request(0x87, &format!("{NAMES} InitialR2T=No")), &gate);
        let Step::Done(logged_in, reply) = step else {
            panic!("{step:?}")
        };
        assert_eq!(logged_in.target.as_deref(), Some("iqn.t"));
        assert_eq!(logged_in.command_number, 100);
        assert!(!logged_in.parameters.initial_r2t);
        let keys = Keys::parse(&reply.data).unwrap();
        assert_eq!(keys.value("TargetPortalGroupTag"), Some("1"));
        assert_eq!(keys.value("MaxRecvDataSegmentLength"), Some("262144"));
    }

    #[test]
    fn what_is_missing_or_wrong_has_its_status() {
        let gate = Gate(Admission::Open);
        for (flags, text, expected) in [
            (0x87, "TargetName=iqn.t", 0x0207),
            (0x87, "InitiatorName=iqn.i", 0x0207),
            (0x87, "InitiatorName=iqn.i TargetName=iqn.x", 0x0203),
            (0x87, "InitiatorName=iqn.i SessionType=Odd", 0x0209),
            (0xc7, NAMES, 0x0200),
            (0x8f, NAMES, 0x0200),
            (0x87, "novalue", 0x0200),
        ] {
            let step = Login::default().step(&request(flags, text), &gate);
            assert_eq!(status(&step), expected, "{text}");
        }
    }

    fn secrets() -> Secrets {
        Secrets {
            user: "user".to_string(),
            secret: "twelve-bytes-or-more".to_string(),
            target: Some(("tarn".to_string(), "another-secret-here".to_string())),
        }
    }

    /// Goes through CHAP with a secret; the last step.
    fn chap(secret: &str, last: &str) -> Step {
        let (mut login, gate) = (Login::default(), Gate(Admission::Chap(secrets())));
        let step = login.step(
            &request(0x81, &format!("{NAMES} AuthMethod=CHAP,None")),
            &gate,
        );
        assert!(matches!(step, Step::More(_)));
        let step = login.step(&request(0x00, "CHAP_A=5"), &gate);
        let Step::More(reply) = step else {
            panic!("{step:?}")
        };
        let keys = Keys::parse(&reply.data).unwrap();
        let challenge = binary(keys.value("CHAP_C").unwrap()).unwrap();
        let identifier = keys.value("CHAP_I").unwrap().parse().unwrap();
        let response = Algorithm::Md5.response(identifier, secret, &challenge);
        let text = format!("CHAP_N=user CHAP_R={}{last}", hexadecimal_of(&response));
        login.step(&request(0x81, &text), &gate)
    }

    #[test]
    fn only_the_secret_opens_the_operational_stage() {
        let step = chap("twelve-bytes-or-more", "");
        assert!(matches!(&step, Step::More(reply) if reply.header[1] == 0x81));
        assert_eq!(status(&chap("wrong", "")), 0x0201);
        let gate = Gate(Admission::Chap(secrets()));
        let step = Login::default().step(&request(0x87, NAMES), &gate);
        assert_eq!(status(&step), 0x0201);
        let text = format!("{NAMES} AuthMethod=None");
        let step = Login::default().step(&request(0x81, &text), &gate);
        assert_eq!(status(&step), 0x0201);
    }

    #[test]
    fn the_target_proves_itself_but_not_to_its_own_challenge() {
        let step = chap("twelve-bytes-or-more", " CHAP_I=7 CHAP_C=0x0102");
        let Step::More(reply) = step else {
            panic!("{step:?}")
        };
        let keys = Keys::parse(&reply.data).unwrap();
        let expected = Algorithm::Md5.response(7, "another-secret-here", &[1, 2]);
        assert_eq!(keys.value("CHAP_R"), Some(&*hexadecimal_of(&expected)));
        let reflected = hexadecimal_of(&[9; chap::CHALLENGE_BYTES]);
        let step = chap(
            "twelve-bytes-or-more",
            &format!(" CHAP_I=7 CHAP_C={reflected}"),
        );
        assert_eq!(status(&step), 0x0201);
    }

    #[test]
    fn a_login_without_end_is_refused() {
        let (mut login, gate) = (Login::default(), Gate(Admission::Open));
        let more = request(0x04, NAMES);
        let steps = (0..1000).map(|_| login.step(&more, &gate));
        let refused = steps.take_while(|step| !matches!(step, Step::Failed(_)));
        assert_eq!(refused.count(), 32);
    }
}
