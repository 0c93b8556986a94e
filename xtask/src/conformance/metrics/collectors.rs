//! Prometheus and InfluxDB of Debian's packages, with folders and ports of their own.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::plain_http::{answer_of, ask, in_path};
use crate::servers::{Server, await_server, free_port, start};
use crate::workspace::Outcome;

/// A Prometheus that scrapes the daemon each second.
pub struct Prometheus {
    port: u16,
    _server: Server,
}

impl Prometheus {
    /// Starts one; `is_native` for one that takes native histograms, as protocol buffers.
    pub fn start(
        program: &Path,
        folder: &Path,
        tarnd: u16,
        token: &str,
        is_native: bool,
    ) -> Outcome<Prometheus> {
        fs::create_dir_all(folder)?;
        let (configuration, port) = (folder.join("prometheus.yml"), free_port()?);
        let text = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\n\
             scrape_configs:\n\
             - job_name: tarn\n  \
               authorization: {{credentials: {token}}}\n  \
               static_configs: [{{targets: ['127.0.0.1:{tarnd}']}}]\n"
        );
        fs::write(&configuration, text)?;
        let mut command = Command::new(program);
        command
            .arg(format!("--config.file={}", configuration.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.join("data").display()
            ))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"));
        if is_native {
            command.arg("--enable-feature=native-histograms");
        }
        let server = start(&mut command)?;
        let answers = || matches!(answer_of(port, "GET", "/-/ready", &[], ""), Ok((200, _)));
        await_server(answers, "Prometheus")?;
        Ok(Prometheus {
            port,
            _server: server,
        })
    }

    /// The sum that an expression has now; `None` where there is nothing.
    pub fn sum(&self, expression: &str) -> Outcome<Option<f64>> {
        let path = format!("/api/v1/query?query={}", in_path(expression));
        let answer: Value = serde_json::from_str(&ask(self.port, "GET", &path, &[], "")?)?;
        let value = answer["data"]["result"][0]["value"][1].as_str();
        Ok(value.and_then(|value| value.parse().ok()))
    }

    /// What went wrong with its last scrape; empty where nothing did.
    pub fn scrape_error(&self) -> Outcome<String> {
        let answer: Value =
            serde_json::from_str(&ask(self.port, "GET", "/api/v1/targets", &[], "")?)?;
        let error = answer["data"]["activeTargets"][0]["lastError"].as_str();
        Ok(error.unwrap_or("no target").to_owned())
    }
}

/// An InfluxDB with one database.
pub struct InfluxDb {
    /// Where it listens.
    pub port: u16,
    _server: Server,
}

impl InfluxDb {
    /// Starts one.
    pub fn start(program: &Path, folder: &Path) -> Outcome<InfluxDb> {
        fs::create_dir_all(folder)?;
        let (port, other_port) = (free_port()?, free_port()?);
        let place = |name: &str| folder.join(name).display().to_string();
        let text = format!(
            "reporting-disabled = true\nbind-address = \"127.0.0.1:{other_port}\"\n\
             [meta]\ndir = {:?}\n\
             [data]\ndir = {:?}\nwal-dir = {:?}\n\
             [http]\nbind-address = \"127.0.0.1:{port}\"\nlog-enabled = false\n\
             [monitor]\nstore-enabled = false\n",
            place("meta"),
            place("data"),
            place("wal"),
        );
        let configuration = folder.join("influxdb.conf");
        fs::write(&configuration, text)?;
        let log = File::create(folder.join("influxd.log"))?;
        let mut command = Command::new(program);
        command
            .arg("-config")
            .arg(&configuration)
            .stderr(Stdio::from(log));
        let server = start(&mut command)?;
        let answers = || matches!(answer_of(port, "GET", "/ping", &[], ""), Ok((204, _)));
        await_server(answers, "InfluxDB")?;
        let create = format!("/query?q={}", in_path("CREATE DATABASE tarn"));
        ask(port, "POST", &create, &[], "")?;
        Ok(InfluxDb {
            port,
            _server: server,
        })
    }

    /// Writes lines.
    pub fn write(&self, lines: &str) -> Outcome {
        ask(self.port, "POST", "/write?db=tarn", &[], lines)?;
        Ok(())
    }

    /// The number in the last column of the first row that a query gives.
    pub fn number(&self, query: &str) -> Outcome<Option<f64>> {
        let path = format!("/query?db=tarn&q={}", in_path(query));
        let answer: Value = serde_json::from_str(&ask(self.port, "GET", &path, &[], "")?)?;
        let result = &answer["results"][0];
        if let Some(error) = result["error"].as_str() {
            return Err(format!("InfluxDB: {query}: {error}").into());
        }
        let row = result["series"][0]["values"][0].as_array();
        Ok(row.and_then(|row| row.last()).and_then(Value::as_f64))
    }
}
