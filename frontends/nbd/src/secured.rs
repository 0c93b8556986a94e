//! TLS in the handshake: the client asks for it, and may have to.
//!
//! Options that come before are refused where TLS is required; what was agreed on in plain before
//! it begins is forgotten, as the protocol demands: another machine may have said it.

use crate::nbd_messages::{option, option_reply, reply};
use crate::sending::Sender;
use std::sync::Arc;
use tarn_tls::TlsServer;

/// Whether clients must begin TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsUse {
    /// They may.
    Offered,
    /// Those that come by TCP must. To a Unix socket only users of this machine connect.
    Required,
}

/// What TLS a connection may have.
pub(crate) struct Security {
    tls: Option<Arc<TlsServer>>,
    is_required: bool,
}

/// What an option was for TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Secured {
    /// It is answered elsewhere.
    Passes,
    /// It was refused.
    Answered,
    /// TLS has begun.
    Began,
}

impl Security {
    /// Of a connection to a server that may have TLS.
    pub(crate) fn new(tls: Option<&(Arc<TlsServer>, TlsUse)>, is_local: bool) -> Security {
        Security {
            tls: tls.map(|(tls, _)| tls.clone()),
            is_required: !is_local && tls.is_some_and(|(_, tls_use)| *tls_use == TlsUse::Required),
        }
    }

    /// Answers an option where it begins TLS, or comes too early. `is_drained`: nothing was
    /// received behind it.
    pub(crate) fn answer(
        &self,
        sender: &Sender,
        option: u32,
        data: &[u8],
        is_drained: impl Fn() -> bool,
    ) -> Secured {
        let say = |kind: u32, why: &[u8]| {
            sender.send(&[&option_reply(option, kind, why)]);
            Secured::Answered
        };
        let is_tls = sender.channel().is_tls();
        match (option, &self.tls) {
            (option::STARTTLS, _) if !data.is_empty() => {
                say(reply::ERR_INVALID, b"STARTTLS has no data")
            }
            (option::STARTTLS, _) if is_tls => say(reply::ERR_INVALID, b"TLS has begun before"),
            (option::STARTTLS, None) => say(
                reply::ERR_UNSUP,
                b"this server has no certificate for TLS: see --nbd-tls of tarnd(8)",
            ),
            // Bytes that came in plain would be taken for encrypted ones.
            (option::STARTTLS, Some(_)) if !is_drained() => {
                sender.close();
                Secured::Answered
            }
            (option::STARTTLS, Some(tls)) => {
                say(reply::ACK, &[]);
                match sender.channel().begin_tls(tls) {
                    Ok(()) => Secured::Began,
                    Err(_) => {
                        sender.close();
                        Secured::Answered
                    }
                }
            }
            _ if is_tls || !self.is_required || option == option::ABORT => Secured::Passes,
            // It has no reply that refuses it.
            (option::EXPORT_NAME, _) => {
                sender.close();
                Secured::Answered
            }
            _ => say(reply::ERR_TLS_REQD, b"this server requires TLS"),
        }
    }
}
