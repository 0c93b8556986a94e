//! Adding, removing and listing alerts.

use super::alert_rules::{ALERTS_MAX, FILE_BYTES_MAX, check};
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::messages::alerts::{
    AddAlert, Alert, AlertMeasure, AlertStatus, Alerts, ListAlerts, RemoveAlert,
};
use crate::messages::{Done, Refusal, RefusalKind};
use std::collections::BTreeMap;
use tarn_analytics::Field;
use tarn_archive::Sampled;
use tarn_probe::Operation;

impl Administrator {
    /// Adds an alert, or replaces the one of its name.
    pub(crate) fn add_alert(
        &self,
        call: &Call,
        request: AddAlert,
        operation: &Operation,
    ) -> Result<Done, Refusal> {
        self.may_see_names(call)?;
        let alert = request.alert;
        let refused = |why: String| {
            let action = format!("cannot add alert '{}'", alert.name);
            Refusal::new(RefusalKind::Invalid, action, why)
        };
        check(&alert).map_err(refused)?;
        self.check_statements(&alert, operation)
            .map_err(|refusal| refused(refusal.to_string()))?;
        let mut rules = self.alert_rules()?;
        if rules.len() >= ALERTS_MAX && !rules.contains_key(&alert.name) {
            return Err(refused(format!(
                "there are {ALERTS_MAX} alerts: remove one first"
            )));
        }
        rules.insert(alert.name.clone(), alert);
        self.keep_alerts(rules)
    }

    /// Removes an alert.
    pub(crate) fn remove_alert(&self, call: &Call, request: &RemoveAlert) -> Result<Done, Refusal> {
        self.may_see_names(call)?;
        let mut rules = self.alert_rules()?;
        match rules.remove(&request.name) {
            Some(_) => self.keep_alerts(rules),
            None => {
                let action = format!("no alert '{}'", request.name);
                let reason = "none has that name";
                Err(Refusal::new(RefusalKind::NotFound, action, reason))
            }
        }
    }

    /// Lists the alerts.
    pub(crate) fn list_alerts(&self, call: &Call, _: ListAlerts) -> Result<Alerts, Refusal> {
        self.may_see_names(call)?;
        let rules = self.alert_rules()?;
        let kept = self.alerts.lock();
        let told = rules.into_values().map(|alert| {
            let seen = kept.seen.get(&alert.name).cloned().unwrap_or_default();
            AlertStatus {
                state: seen.phase.state(),
                since_ms: seen
                    .phase
                    .since_s()
                    .map(|since_s| since_s.saturating_mul(1000)),
                value: seen.value,
                problem: seen.problem,
                alert,
            }
        });
        Ok(Alerts {
            alerts: told.collect(),
        })
    }

    /// The alerts, by name; read from their file at first.
    pub(super) fn alert_rules(&self) -> Result<BTreeMap<String, Alert>, Refusal> {
        if let Some(rules) = &self.alerts.lock().rules {
            return Ok(rules.clone());
        }
        let path = self.engine.instance.alerts();
        let failed = |why: String| {
            let action = format!("cannot use {}", path.display());
            Refusal::new(RefusalKind::Corrupt, action, why).with_hint("repair or remove the file")
        };
        let host = &self.engine.host;
        let size = host.file_size_bytes(&path);
        let rules = match size {
            Err(error) if error.is_not_found() => BTreeMap::new(),
            Err(error) => return Err(failed(error.errno.to_string())),
            Ok(size) if size > FILE_BYTES_MAX => return Err(failed("it is too large".into())),
            Ok(_) => {
                let bytes = host.read_file(&path);
                let bytes = bytes.map_err(|error| failed(error.errno.to_string()))?;
                let alerts: Vec<Alert> = serde_json::from_slice(&bytes)
                    .map_err(|error| failed(format!("it has no list of alerts: {error}")))?;
                let named = alerts.into_iter().take(ALERTS_MAX);
                let named = named.map(|alert| (alert.name.clone(), alert));
                named.collect()
            }
        };
        let mut kept = self.alerts.lock();
        Ok(kept.rules.get_or_insert(rules).clone())
    }

    fn keep_alerts(&self, rules: BTreeMap<String, Alert>) -> Result<Done, Refusal> {
        let path = self.engine.instance.alerts();
        let list: Vec<&Alert> = rules.values().collect();
        let failed = |why: String| {
            let action = format!("cannot write {}", path.display());
            Refusal::new(RefusalKind::Device, action, why)
        };
        let bytes = serde_json::to_vec_pretty(&list).map_err(|error| failed(error.to_string()))?;
        let written = self.engine.host.write_file_atomically(&path, &bytes);
        written.map_err(|error| failed(error.errno.to_string()))?;
        let mut kept = self.alerts.lock();
        kept.seen.retain(|name, _| rules.contains_key(name));
        kept.rules = Some(rules);
        Ok(Done {})
    }

    /// Refuses statements that have no such value.
    fn check_statements(&self, alert: &Alert, operation: &Operation) -> Result<(), Refusal> {
        let invalid = |statement: &str, why: &str| {
            let action = format!("cannot watch '{statement}'");
            Refusal::new(RefusalKind::Invalid, action, why)
        };
        let is_sampled = matches!(Sampled::parse(&alert.statement), Ok(Some(_)));
        if (alert.measure == AlertMeasure::Value) != is_sampled {
            let why = "'value' is the measure of sampled statistics, and they have no other";
            return Err(invalid(&alert.statement, why));
        }
        for statement in [Some(&alert.statement), alert.of.as_ref()]
            .into_iter()
            .flatten()
        {
            if is_sampled {
                return Ok(());
            }
            let asked = self.understand(statement, None, operation)?;
            if !asked.statement.by().is_empty() {
                let why = "an alert has one value: filter, and do not break down";
                return Err(invalid(statement, why));
            }
            let has_values = matches!(
                asked.statement.numeric(),
                Some(Field::Latency | Field::Size)
            );
            if alert.measure.is_of_values() && !has_values {
                let why = "its mean, percentiles and maximum are of ':latency' or ':size'";
                return Err(invalid(statement, why));
            }
        }
        Ok(())
    }
}
