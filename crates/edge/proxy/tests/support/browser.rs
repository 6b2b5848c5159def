//! Chromium, controlled by the DevTools protocol over a pipe.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// A page in a browser, until dropped.
pub(crate) struct Browser {
    process: Child,
    commands: ChildStdin,
    messages: BufReader<ChildStdout>,
    session: Option<String>,
    next_id: u64,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Opens an empty page.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Opens an empty page in a browser with further arguments.
    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        let profile = tempfile::tempdir().expect("the folder is created");
        // The protocol uses the descriptors 3 and 4.
        let mut process = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 >&2", "chromium"])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--no-first-run",
                "--remote-debugging-pipe",
            ])
            .args(arguments)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the test checked that the program is installed");
        let mut browser = Self {
            commands: process.stdin.take().expect("the input is a pipe"),
            messages: BufReader::new(process.stdout.take().expect("the output is a pipe")),
            process,
            session: None,
            next_id: 0,
            _profile: profile,
        };
        let created = browser.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let target = &created["targetId"];
        let attach = json!({ "targetId": target, "flatten": true });
        let attached = browser.call("Target.attachToTarget", &attach);
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        browser
    }

    /// Sends a command and returns its result. Skips the events before it.
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Value {
        self.next_id += 1;
        let mut command = json!({ "id": self.next_id, "method": method, "params": params });
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        let sent = write!(self.commands, "{command}\0");
        sent.and_then(|()| self.commands.flush())
            .expect("the browser reads commands");
        loop {
            let mut message = Vec::new();
            let read = self.messages.read_until(0, &mut message);
            assert!(read.is_ok_and(|bytes| bytes > 0), "the browser has ended");
            message.pop();
            let message: Value = serde_json::from_slice(&message).expect("a message is JSON");
            if message["id"] == self.next_id {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].clone();
            }
        }
    }

    /// Opens a URL in a window of this width.
    pub(crate) fn open(&mut self, url: &str, width: u32, scheme: &str) {
        let size =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.call(
            "Emulation.setEmulatedMedia",
            &json!({ "features": [feature] }),
        );
        self.call("Page.navigate", &json!({ "url": url }));
    }

    /// Returns the value of an expression of JavaScript, or of its promise.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({
            "expression": expression,
            "awaitPromise": true,
            "returnByValue": true,
        });
        let result = self.call("Runtime.evaluate", &params);
        let failed = result.get("exceptionDetails");
        assert!(failed.is_none(), "{expression}: {failed:?}");
        result["result"]["value"].clone()
    }

    /// Waits in the page until an expression is true. The page changes between two looks.
    pub(crate) fn wait_for(&mut self, expression: &str) {
        let promise = format!(
            "new Promise(done => {{ const look = () => ({expression}) ? done(true) : setTimeout(look, 20); look(); }})"
        );
        assert_eq!(self.evaluate(&promise), true);
    }

    /// Presses a key.
    pub(crate) fn press(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            let code = match key {
                "Tab" => 9,
                "Enter" => 13,
                _ => 0,
            };
            let params = json!({
                "type": kind,
                "key": key,
                "code": key,
                "windowsVirtualKeyCode": code,
                "text": if key == "Enter" { "\r" } else { "" },
            });
            self.call("Input.dispatchKeyEvent", &params);
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}
