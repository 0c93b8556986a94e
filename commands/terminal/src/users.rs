//! Names of users, by the numbers that are stored.

/// The file of users.
const USERS: &str = "/etc/passwd";

/// The name of a user, where this machine knows it.
pub fn name(id: u64) -> Option<String> {
    name_in(&std::fs::read_to_string(USERS).ok()?, id)
}

/// The name in a file of lines `name:password:id:…`.
fn name_in(text: &str, id: u64) -> Option<String> {
    let mut lines = text.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| {
        let name = fields.next()?;
        let found: u64 = fields.nth(1)?.parse().ok()?;
        (found == id).then(|| name.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_go_by_their_numbers() {
        let text = "root:x:0:0:root:/root:/bin/sh\n# comment\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!(name_in(text, 1000).as_deref(), Some("ann"));
        assert_eq!(name_in(text, 0).as_deref(), Some("root"));
        assert_eq!(name_in(text, 7), None);
    }
}
