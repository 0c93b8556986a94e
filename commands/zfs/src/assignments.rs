//! `property=value` on a command line.

use tarn_engine::properties::parse::meant;
use tarn_terminal::failure::{Failure, complain};

/// Properties and values in the order given, each property once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Assignments(pub Vec<(String, String)>);

impl Assignments {
    /// Adds `property=value`. What is wrong is said; `code` is how the command fails then.
    ///
    /// # Errors
    /// Without `=`, or when the property was given before.
    pub fn add(&mut self, text: &str, code: u8) -> Result<(), Failure> {
        let Some((name, value)) = text.split_once('=') else {
            complain("missing '=' for property=value argument");
            return Err(Failure::Silent(code));
        };
        let name = meant(name);
        if self.find(name).is_some() {
            complain(format!("property '{name}' specified multiple times"));
            return Err(Failure::Silent(code));
        }
        self.0.push((name.to_string(), value.to_string()));
        Ok(())
    }

    /// Gives a property a value, whatever it had.
    pub fn replace(&mut self, name: &str, value: String) {
        self.0.retain(|(known, _)| known != name);
        self.0.push((name.to_string(), value));
    }

    /// The value given to a property.
    pub fn find(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_property_is_given_once_with_all_that_follows_the_first_sign() {
        let mut assignments = Assignments::default();
        assignments.add("com.example:note=a=b", 1).unwrap();
        assert_eq!(assignments.find("com.example:note"), Some("a=b"));
        assert_eq!(
            assignments.add("com.example:note=c", 1),
            Err(Failure::Silent(1))
        );
        assert_eq!(assignments.add("atime", 255), Err(Failure::Silent(255)));
        assignments.add("shareiscsi=on", 1).unwrap();
        assert_eq!(assignments.find("tarn:shareiscsi"), Some("on"));
        assert_eq!(
            assignments.add("tarn:shareiscsi=off", 1),
            Err(Failure::Silent(1))
        );
    }
}
