//! The files of the page, which are in the program.
//!
//! `page/` has their sources; `cargo xtask page` makes them anew in `page/built/`, and
//! `page/built/sources.sha256` has the sums of the sources that they were made of.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};
use std::io::Write;
use std::sync::LazyLock;

/// What a browser may do with the page: nothing comes from elsewhere, nothing frames it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
                      connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// One file.
struct PageFile {
    path: &'static str,
    media_type: &'static str,
    bytes: &'static [u8],
}

const FILES: [PageFile; 3] = [
    PageFile {
        path: "/",
        media_type: "text/html; charset=utf-8",
        bytes: include_bytes!("../page/built/index.html"),
    },
    PageFile {
        path: "/page.js",
        media_type: "text/javascript; charset=utf-8",
        bytes: include_bytes!("../page/built/page.js"),
    },
    PageFile {
        path: "/page.css",
        media_type: "text/css; charset=utf-8",
        bytes: include_bytes!("../page/built/page.css"),
    },
];

/// A file as it is sent.
struct Packed {
    compressed: Vec<u8>,
    tag: String,
}

static PACKED: LazyLock<Vec<Packed>> = LazyLock::new(|| FILES.iter().map(pack).collect());

fn pack(file: &PageFile) -> Packed {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let compressed = encoder
        .write_all(file.bytes)
        .and_then(|()| encoder.finish());
    let digest = Sha256::digest(file.bytes);
    let digits: String = digest[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Packed {
        compressed: compressed.expect("memory takes all bytes"),
        tag: format!("\"{digits}\""),
    }
}

/// The file of a path; none where the page has no such file.
pub(crate) fn answer(path: &str, headers: &HeaderMap) -> Option<Response<Body>> {
    let place = FILES.iter().position(|file| file.path == path)?;
    let (file, packed) = (&FILES[place], &PACKED[place]);
    let mentions = |name, text: &str| {
        let value = headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok());
        value.is_some_and(|value| value.split(',').any(|part| part.trim().starts_with(text)))
    };
    let response = Response::builder()
        .header(header::ETAG, &packed.tag)
        .header(header::CACHE_CONTROL, "no-cache")
        .header(header::VARY, "accept-encoding");
    let response = if mentions(header::IF_NONE_MATCH, &packed.tag) {
        response
            .status(StatusCode::NOT_MODIFIED)
            .body(Body::empty())
    } else {
        let response = response.header(header::CONTENT_TYPE, file.media_type);
        match mentions(header::ACCEPT_ENCODING, "gzip") {
            true => response
                .header(header::CONTENT_ENCODING, "gzip")
                .body(packed.compressed.as_slice().into()),
            false => response.body(file.bytes.into()),
        }
    };
    Some(response.expect("the headers are texts"))
}

/// Adds what every answer has.
pub(crate) fn protect(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// The bar: all of it, compressed.
    const COMPRESSED_MAX: usize = 150 * 1024;

    #[test]
    fn the_page_is_small_and_asks_no_other_server() {
        let all: usize = PACKED.iter().map(|packed| packed.compressed.len()).sum();
        assert!(all <= COMPRESSED_MAX, "{all} bytes");
        for file in &FILES {
            let text = std::str::from_utf8(file.bytes).unwrap();
            for scheme in ["http://", "https://", "//cdn"] {
                // The namespace of SVG is a name, and asks nothing.
                let text = text.replace("http://www.w3.org/2000/svg", "");
                assert!(!text.contains(scheme), "{} has {scheme}", file.path);
            }
        }
    }

    /// Without node this tells that sources were changed and the page not made anew.
    #[test]
    fn the_built_page_is_of_these_sources() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
        let sums = std::fs::read_to_string(page.join("built/sources.sha256")).unwrap();
        let mut listed = 0;
        for line in sums.lines() {
            let (sum, name) = line.split_once("  ").unwrap();
            let bytes = std::fs::read(page.join(name)).unwrap();
            let digest = Sha256::digest(bytes);
            let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(digits, sum, "{name} was changed: run 'cargo xtask page'");
            listed += 1;
        }
        let sources = std::fs::read_dir(page.join("src")).unwrap().count();
        // The manifest, the lock file, the settings of the compiler and the build itself besides.
        assert_eq!(
            listed,
            sources + 4,
            "sources came or went: run 'cargo xtask page'"
        );
    }

    #[test]
    fn files_come_compressed_and_only_once() {
        let mut headers = HeaderMap::new();
        assert!(answer("/../Cargo.toml", &headers).is_none());
        let plain = answer("/page.js", &headers).unwrap();
        assert!(!plain.headers().contains_key(header::CONTENT_ENCODING));
        headers.insert(
            header::ACCEPT_ENCODING,
            HeaderValue::from_static("br, gzip"),
        );
        let packed = answer("/page.js", &headers).unwrap();
        assert_eq!(packed.headers()[header::CONTENT_ENCODING], "gzip");
        let tag = packed.headers()[header::ETAG].clone();
        headers.insert(header::IF_NONE_MATCH, tag);
        let again = answer("/page.js", &headers).unwrap();
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
    }
}
