//! The parts of WebDriver that are needed: JSON over HTTP to a separate chromedriver.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
}

#[derive(Clone, Copy, Debug)]
pub enum Theme {
    Light,
    Dark,
}

/// In CSS pixels, without margins.
const A4_WIDTH: u32 = 718;
/// A browser that takes longer has hung.
const TIMEOUT: Duration = Duration::from_secs(60);

impl Browser {
    /// Starts a browser with a profile in this folder.
    pub fn start(folder: &Path) -> Self {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("make setup installs chromium-driver");
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.by_ref().take(20).find_map(|line| {
            let line = line.ok()?;
            line.split_once("successfully on port ")?.1.trim_end_matches('.').parse().ok()
        });
        // It keeps writing, so its output must be read.
        std::thread::spawn(move || lines.for_each(drop));
        let mut browser = Self {
            driver,
            port: port.expect("chromedriver says its port"),
            session: String::new(),
        };
        let profile = format!("--user-data-dir={}", folder.join("profile").display());
        let quiet = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            &profile,
        ];
        let made = browser.call(
            "POST",
            "/session",
            &json!({ "capabilities": { "alwaysMatch": {
                "browserName": "chrome",
                "goog:chromeOptions": { "args": quiet },
                "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
            }}}),
        );
        browser.session = made["sessionId"].as_str().unwrap().to_owned();
        browser
    }

    pub fn open(&self, page: &Path) {
        self.post("/url", &json!({ "url": format!("file://{}", page.display()) }));
    }

    /// Returns the result of a function's body.
    pub fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Waits until the page is laid out and drawn, and its events are handled.
    pub fn settle(&self) {
        let script = "const done = arguments[0];
            requestAnimationFrame(() => requestAnimationFrame(() => done(null)))";
        self.post("/execute/async", &json!({ "script": script, "args": [] }));
    }

    /// Sends a command of the DevTools protocol.
    pub fn command(&self, name: &str, params: Value) -> Value {
        self.post("/goog/cdp/execute", &json!({ "cmd": name, "params": params }))
    }

    /// Sets a width, which may be narrower than a window can be.
    pub fn look(&self, width: u32, theme: Theme) {
        let theme = match theme {
            Theme::Light => "light",
            Theme::Dark => "dark",
        };
        let size =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.command("Emulation.setDeviceMetricsOverride", size);
        let features = json!([{ "name": "prefers-color-scheme", "value": theme }]);
        self.command("Emulation.setEmulatedMedia", json!({ "media": "", "features": features }));
    }

    /// Shows the page as printed.
    pub fn look_as_printed(&self) {
        self.look(A4_WIDTH, Theme::Light);
        self.command("Emulation.setEmulatedMedia", json!({ "media": "print" }));
    }

    /// Moves the mouse to this point.
    pub fn point(&self, x: f64, y: f64) {
        let moved = json!({ "type": "pointerMove", "duration": 0, "x": x as i64, "y": y as i64 });
        let mouse = json!({ "type": "pointer", "id": "mouse", "actions": [moved] });
        self.post("/actions", &json!({ "actions": [mouse] }));
    }

    pub fn press(&self, key: &str) {
        let actions =
            json!([{ "type": "keyDown", "value": key }, { "type": "keyUp", "value": key }]);
        let keys = json!({ "type": "key", "id": "keys", "actions": actions });
        self.post("/actions", &json!({ "actions": [keys] }));
    }

    /// Returns new warnings and errors of the console.
    pub fn console_errors(&self) -> Vec<Value> {
        let all = self.post("/se/log", &json!({ "type": "browser" }));
        let all = all.as_array().unwrap().iter();
        all.filter(|entry| entry["level"] == "SEVERE" || entry["level"] == "WARNING")
            .cloned()
            .collect()
    }

    /// Returns requested addresses other than the page's own.
    pub fn requests_beyond(&self, page: &Path) -> Vec<String> {
        let all = self.post("/se/log", &json!({ "type": "performance" }));
        let own = format!("file://{}", page.display());
        let mut opened = 0;
        let mut beyond = Vec::new();
        for entry in all.as_array().unwrap() {
            let message: Value = serde_json::from_str(entry["message"].as_str().unwrap()).unwrap();
            let message = &message["message"];
            let params = &message["params"];
            // Requests of the browser's first tab do not count.
            if message["method"] == "Network.requestWillBeSent" && params["documentURL"] == own {
                let url = params["request"]["url"].as_str().unwrap().to_owned();
                opened += usize::from(url == own);
                beyond.extend((url != own).then_some(url));
            }
        }
        assert!(opened > 0, "the log of requests knows not even the page");
        beyond
    }

    /// Returns the page from its top to the end of this section, as a PNG.
    pub fn picture(&self, width: u32, sections: usize) -> Vec<u8> {
        use base64::Engine;
        let script =
            "return document.querySelectorAll('section')[AT].getBoundingClientRect().bottom";
        let bottom = self.run(&script.replace("AT", &(sections - 1).to_string()));
        let height = bottom.as_f64().unwrap().ceil() + 12.0;
        let clip = json!({ "x": 0, "y": 0, "width": width, "height": height, "scale": 1 });
        let shot = json!({ "captureBeyondViewport": true, "clip": clip });
        let made = self.command("Page.captureScreenshot", shot);
        let data = made["data"].as_str().unwrap();
        base64::engine::general_purpose::STANDARD.decode(data).unwrap()
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.call("POST", &format!("/session/{}{path}", self.session), body)
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let reply = self.try_call(method, path, &body.to_string()).unwrap();
        assert!(reply["value"]["error"].is_null(), "{path}: {}", reply["value"]["message"]);
        reply["value"].clone()
    }

    fn try_call(&self, method: &str, path: &str, body: &str) -> std::io::Result<Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )?;
        let mut reader = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let line = line.trim_end().to_lowercase();
            if let Some(n) = line.strip_prefix("content-length:") {
                length = n.trim().parse().unwrap_or(0);
            }
            if line.is_empty() {
                break;
            }
        }
        let mut reply = vec![0; length];
        reader.read_exact(&mut reply)?;
        Ok(serde_json::from_slice(&reply)?)
    }
}

/// The driver ends its browser before it answers; if killed first, it would leave it running.
impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.try_call("DELETE", &format!("/session/{}", self.session), "");
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
