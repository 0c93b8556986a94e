//! `SECINFO` and `SECINFO_NO_NAME`: by which flavors a file may be reached.

use super::compound::{Compound, Current, Done};
use super::status::Status;
use crate::rpc::gss::RPCSEC_GSS;
use crate::security_flavors::{Flavor, Flavors};
use crate::xdr::{Reader, Writer};
use tarn_engine::gss::KRB5;

impl Compound<'_> {
    /// `SECINFO`: how a name in the current directory may be reached.
    pub(super) fn security(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        let here = self.current.clone();
        self.asker.asks_for_security.set(true);
        let found = self.look_up(reader);
        self.asker.asks_for_security.set(false);
        found?;
        put_flavors(&self.flavors(), out);
        // Later versions have no current file afterwards.
        self.current = here.filter(|_| self.minor == 0);
        Ok(())
    }

    /// `SECINFO_NO_NAME`: how the current file, or the directory above it, may be reached.
    pub(super) fn security_of_current(
        &mut self,
        reader: &mut Reader<'_>,
        out: &mut Writer,
    ) -> Done {
        const PARENT: u32 = 1;
        let style = reader.u32()?;
        if self.current.is_none() {
            return Err(Status::NOFILEHANDLE);
        }
        if style == PARENT {
            self.asker.asks_for_security.set(true);
            let found = self.look_up_parent();
            self.asker.asks_for_security.set(false);
            found?;
        }
        put_flavors(&self.flavors(), out);
        self.current = None;
        Ok(())
    }

    /// Those of the current file. Folders above shares are reached by all that are served.
    fn flavors(&self) -> Flavors {
        match &self.current {
            Some(Current::File { realm, .. }) => realm.share.options.flavors(),
            _ => {
                let of_shares = self.shares.all().map(|share| share.options.flavors());
                let all: Vec<_> = of_shares.chain([Flavors::sys()]).collect();
                Flavors::of_all(all.iter())
            }
        }
    }
}

/// `SECINFO4resok`: numbers, and for RPCSEC_GSS the mechanism and its service.
fn put_flavors(flavors: &Flavors, out: &mut Writer) {
    let all = flavors.all();
    out.u32(u32::try_from(all.len()).expect("there are five at most"));
    for flavor in all {
        match flavor {
            Flavor::Krb5(service) => {
                const DEFAULT_QUALITY: u32 = 0;
                out.u32(RPCSEC_GSS).opaque(KRB5);
                out.u32(DEFAULT_QUALITY).u32(service.number());
            }
            other => drop(out.u32(other.number())),
        }
    }
}
