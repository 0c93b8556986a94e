//! Which site a request comes from.
//!
//! # Problem
//! A site that a browser shows may send requests to this machine. Some carry the cookie of the
//! page; and a name that an attacker's server resolves to this machine makes the page's files and
//! answers belong to that site (DNS rebinding).
//!
//! # Mechanism
//! `Host` must be an address, `localhost`, or a name that the administrator gave: an attacker's
//! name is none of them. Where the browser tells what site caused the request (`Origin`,
//! `Sec-Fetch-Site`) it must be the page itself. The cookie is `SameSite=Strict` besides.

use axum::http::{HeaderMap, header};
use std::net::{IpAddr, Ipv6Addr};

/// Why a request is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Foreign {
    /// Its `Host` is a name that is not known.
    #[error(
        "'{0}' is not a name of this server: use its address, or start tarnd with --web-name {0}"
    )]
    Host(String),
    /// It has no `Host`, or no text there.
    #[error("the request has no valid Host")]
    NoHost,
    /// Another site caused it.
    #[error("the request was caused by another site: {0}")]
    Site(String),
}

/// Refuses requests to other names, and those that other sites caused.
pub(crate) fn check(headers: &HeaderMap, names: &[String], is_tls: bool) -> Result<(), Foreign> {
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let host = host.ok_or(Foreign::NoHost)?;
    let name = name_of(host).ok_or(Foreign::NoHost)?;
    let is_address = |name: &str| match name.strip_prefix('[') {
        Some(rest) => rest
            .strip_suffix(']')
            .is_some_and(|rest| rest.parse::<Ipv6Addr>().is_ok()),
        None => name
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_ipv4()),
    };
    let is_given = || names.iter().any(|given| given.eq_ignore_ascii_case(name));
    if !is_address(name) && !name.eq_ignore_ascii_case("localhost") && !is_given() {
        return Err(Foreign::Host(name.to_owned()));
    }
    let text = |name: &str| {
        let value = headers.get(name);
        value.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    if let Some(site) = text("sec-fetch-site")
        && !matches!(site.as_str(), "same-origin" | "none")
    {
        return Err(Foreign::Site(site));
    }
    let scheme = if is_tls { "https" } else { "http" };
    match text("origin") {
        Some(origin) if !origin.eq_ignore_ascii_case(&format!("{scheme}://{host}")) => {
            Err(Foreign::Site(origin))
        }
        _ => Ok(()),
    }
}

/// `Host` without its port.
fn name_of(host: &str) -> Option<&str> {
    let end = match host.starts_with('[') {
        true => host.find(']')? + 1,
        false => host.find(':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at(end);
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    let is_whole = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
    (is_whole && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(fields: &[(&str, &str)], is_tls: bool) -> Result<(), Foreign> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            let name = axum::http::HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.insert(name, value.parse().unwrap());
        }
        check(&headers, &["nas.example.org".to_owned()], is_tls)
    }

    #[test]
    fn names_that_were_not_given_are_refused() {
        for host in [
            "127.0.0.1:8470",
            "localhost:8470",
            "[::1]:8470",
            "192.168.1.2",
            "NAS.example.org:8470",
        ] {
            assert_eq!(checked(&[("host", host)], false), Ok(()), "{host}");
        }
        for host in [
            "evil.example.com:8470",
            "127.0.0.1.evil.example.com",
            "1.2.3",
            "localhost.evil",
        ] {
            let refused = checked(&[("host", host)], false);
            assert!(matches!(refused, Err(Foreign::Host(_))), "{host}");
        }
        for host in ["", ":80", "[::1", "localhost:http", "[::1]8470"] {
            let refused = checked(&[("host", host)], false);
            assert_eq!(refused, Err(Foreign::NoHost), "{host}");
        }
        assert_eq!(checked(&[], false), Err(Foreign::NoHost));
    }

    #[test]
    fn requests_of_other_sites_are_refused() {
        let host = ("host", "127.0.0.1:8470");
        let own = ("origin", "http://127.0.0.1:8470");
        assert_eq!(checked(&[host, own], false), Ok(()));
        for (origin, is_tls) in [
            ("http://127.0.0.1:8471", false),
            ("http://127.0.0.1:8470", true),
            ("http://evil.example.com", false),
            ("null", false),
        ] {
            let refused = checked(&[host, ("origin", origin)], is_tls);
            assert_eq!(refused, Err(Foreign::Site(origin.to_owned())));
        }
        let site = |site| checked(&[host, ("sec-fetch-site", site)], false);
        assert_eq!(site("same-origin"), Ok(()));
        assert!(site("cross-site").is_err() && site("same-site").is_err());
    }
}
