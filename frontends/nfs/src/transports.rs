//! How calls may come to a share: `xprtsec` of exports(5).

use std::fmt;
use tarn_tls::Peer;

/// The ways by which calls may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transports {
    plain: bool,
    encrypted: bool,
    verified: bool,
}

impl Transports {
    /// All, which is so unless `xprtsec` says otherwise.
    pub(crate) const ALL: Transports = Transports {
        plain: true,
        encrypted: true,
        verified: true,
    };

    /// Decodes `none`, `tls` and `mtls`, with colons between them.
    pub(crate) fn parse(text: &str) -> Option<Transports> {
        let mut chosen = Transports {
            plain: false,
            encrypted: false,
            verified: false,
        };
        for word in text.split(':') {
            match word {
                "none" => chosen.plain = true,
                "tls" => chosen.encrypted = true,
                "mtls" => chosen.verified = true,
                _ => return None,
            }
        }
        Some(chosen)
    }

    /// Whether a call may come from such a client. One that has shown more than is asked for may
    /// always.
    pub(crate) fn has(self, peer: Peer) -> bool {
        match peer {
            Peer::Plain => self.plain,
            Peer::Encrypted => self.plain || self.encrypted,
            Peer::Verified => true,
        }
    }

    /// The least that a client must show.
    pub(crate) fn least(self) -> Peer {
        match (self.plain, self.encrypted) {
            (true, _) => Peer::Plain,
            (false, true) => Peer::Encrypted,
            (false, false) => Peer::Verified,
        }
    }
}

impl fmt::Display for Transports {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            (self.plain, "none"),
            (self.encrypted, "tls"),
            (self.verified, "mtls"),
        ];
        let chosen = all.iter().filter(|(is_chosen, _)| *is_chosen);
        let names: Vec<_> = chosen.map(|(_, name)| *name).collect();
        formatter.write_str(&names.join(":"))
    }
}
