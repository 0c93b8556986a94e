//! `zpool import NAME` and `zpool export`: has the engine do both, and notes the command in the
//! pool's history.

use crate::administration::Call;
use crate::administrator::Administrator;
use crate::messages::pool::{Export, Import, Imported};
use crate::messages::{Done, Refusal};
use tarn_probe::Operation;

impl Administrator {
    pub(crate) fn import(
        &self,
        call: &Call,
        request: &Import,
        operation: &Operation,
    ) -> Result<Imported, Refusal> {
        let imported = self.engine.import(&call.presence, request, operation)?;
        for name in &imported.pools {
            self.record_command(call, name, operation);
        }
        Ok(imported)
    }

    pub(crate) fn export(
        &self,
        call: &Call,
        request: &Export,
        operation: &Operation,
    ) -> Result<Done, Refusal> {
        let record = self.command_record(call);
        let exported = self
            .engine
            .export(&request.name, request.force, record, operation);
        exported.map(|()| Done {})
    }
}
