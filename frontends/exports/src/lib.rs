//! Exports: what Tarn counts, in the forms that other programs read.
//!
//! # Mechanism
//! Replies of the control interface go in, text or bytes come out. Metrics become what Prometheus
//! scrapes: text (`prometheus_text.rs`), or protocol buffers with native histograms
//! (`prometheus_protobuf.rs`); `accepted_form.rs` chooses by what a scraper accepts. Samples of
//! devices become InfluxDB's line protocol under the names of OpenZFS's `zpool_influxdb`
//! (`zpool_influxdb.rs`), with metrics beside them (`influx_metrics.rs`); so do answers of
//! Analytics (`answer_lines.rs`). What is pushed waits in `push_queue.rs`, and is sent by
//! `http_post.rs`.
//!
//! # Invariants
//! - Each counter and each bucket that is exported only grows, as what it is made of does.
//! - Names, labels and values are any text: each form escapes what it must.
//!
//! # Knows nothing about
//! how replies are had, and when something is sent: the programs that use it do that.

mod accepted_form;
mod answer_lines;
mod http_post;
mod influx_line;
mod influx_metrics;
mod prometheus_buckets;
mod prometheus_protobuf;
mod prometheus_text;
mod push_queue;
mod scraped;
mod wire_writer;
mod zpool_influxdb;

pub use accepted_form::{ScrapeForm, accepted_form};
pub use answer_lines::answer_lines;
pub use http_post::{BadUrl, PostError, PostTarget};
pub use influx_line::line_tags;
pub use influx_metrics::metric_lines;
pub use prometheus_protobuf::prometheus_protobuf;
pub use prometheus_text::prometheus_text;
pub use push_queue::PushQueue;
pub use scraped::{Scraped, scraped};
pub use zpool_influxdb::{LineOptions, pool_lines};
