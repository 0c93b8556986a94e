//! `zfs inherit`.

use crate::each;
use tarn_administration::messages::dataset::Inherit;
use tarn_engine::names::is_user_property;
use tarn_engine::properties::parse::meant;
use tarn_engine::properties::table::find;
use tarn_engine::properties::value::Change;
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: "rS",
    long: &[],
};

/// A command line, understood.
#[derive(Debug, Clone, PartialEq)]
struct Request {
    inherit: Inherit,
    names: Vec<String>,
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or why nothing could be asked.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(arguments)?;
    each::dataset(session, &request.names, 1, |client, name| {
        let inherit = Inherit {
            name: name.to_string(),
            ..request.inherit.clone()
        };
        let changed = client.dataset_inherit(inherit)?;
        changed.warnings.iter().for_each(complain);
        Ok(())
    })
}

fn parse(arguments: &[String]) -> Result<Request, Failure> {
    let mut inherit = Inherit::default();
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, _)) = options.take()? {
        match option {
            "r" => inherit.recursive = true,
            _ => inherit.received = true,
        }
    }
    let mut operands = options.operands();
    if operands.is_empty() {
        return Err(Failure::usage("missing property argument"));
    }
    inherit.property = meant(&operands.remove(0)).to_string();
    if operands.is_empty() {
        return Err(Failure::usage("missing dataset argument"));
    }
    check(&inherit)?;
    Ok(Request {
        inherit,
        names: operands,
    })
}

/// What can be told without looking at any dataset.
fn check(inherit: &Inherit) -> Result<(), Failure> {
    let name = &inherit.property;
    let Some(property) = find(name) else {
        return match is_user_property(name) {
            true => Ok(()),
            false => Err(Failure::usage(format!("invalid property '{name}'"))),
        };
    };
    if property.change == Change::ReadOnly {
        return Err(Failure::error(format!("{name} property is read-only")));
    }
    if !property.is_inheritable() && !inherit.received {
        let mut text = format!("'{name}' property cannot be inherited");
        let limits = ["quota", "reservation", "refquota", "refreservation"];
        if limits.contains(&property.name) {
            text.push_str(&format!("\nuse 'zfs set {name}=none' to clear"));
            text.push_str(&format!(
                "\nuse 'zfs inherit -S {name}' to revert to received value"
            ));
        }
        return Err(Failure::error(text));
    }
    if inherit.received && ["volsize", "version"].contains(&property.name) {
        let text = format!("'{name}' property cannot be reverted to a received value");
        return Err(Failure::error(text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    #[test]
    fn a_property_is_cleared_on_several_datasets() {
        let request = parsed("-r compression tank/a tank/b").unwrap();
        assert!(request.inherit.recursive && !request.inherit.received);
        assert_eq!(request.names, ["tank/a", "tank/b"]);
        assert!(parsed("com.example:note tank").is_ok());
        let shared = parsed("shareiscsi tank").unwrap();
        assert_eq!(shared.inherit.property, "tarn:shareiscsi");
    }

    #[test]
    fn what_cannot_be_inherited_is_refused_with_a_cure() {
        for (line, text) in [
            ("used tank", "used property is read-only"),
            (
                "quota tank",
                "'quota' property cannot be inherited\nuse 'zfs set quota=none' to clear\n\
                 use 'zfs inherit -S quota' to revert to received value",
            ),
            ("canmount tank", "'canmount' property cannot be inherited"),
            (
                "-S volsize tank",
                "'volsize' property cannot be reverted to a received value",
            ),
        ] {
            assert_eq!(parsed(line), Err(Failure::error(text)), "{line}");
        }
        assert_eq!(
            parsed("nonsense tank"),
            Err(Failure::usage("invalid property 'nonsense'"))
        );
        assert_eq!(
            parsed("atime"),
            Err(Failure::usage("missing dataset argument"))
        );
    }
}
