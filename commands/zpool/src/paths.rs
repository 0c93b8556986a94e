//! Paths as the daemon needs them: it stands in another folder.

/// A path from the root, whether there is something or not.
pub fn absolute(path: &str) -> String {
    match std::path::absolute(path) {
        Ok(whole) => whole.to_string_lossy().into_owned(),
        Err(_) => path.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_begin_at_the_root() {
        assert_eq!(absolute("/tmp/a"), "/tmp/a");
        assert!(absolute("a").starts_with('/'));
        assert!(absolute("a").ends_with("/a"));
    }
}
