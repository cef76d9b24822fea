//! Servers that send the same to every client, without end.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Memory that any command may use, whatever server it talks to.
pub const PEAK_KB_MAX: u64 = 256 << 10;

/// A server that sends the same to every client for as long as one reads.
pub struct Flood {
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
}

impl Flood {
    pub fn of(head: &'static str, forever: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (own, forever) = (stop.clone(), Arc::new(forever));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (own, forever) = (own.clone(), forever.clone());
                if own.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::spawn(move || flood(stream, head, &forever, &own));
            }
        });
        Self { address, stop }
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

fn flood(mut stream: TcpStream, head: &str, forever: &[u8], stop: &AtomicBool) {
    let mut request = [0; 4096];
    let _ = stream.set_write_timeout(Some(Duration::from_millis(200)));
    while stream.read(&mut request).is_ok_and(|n| n > 0)
        && stream.write_all(head.as_bytes()).is_ok()
    {
        while !forever.is_empty() && !stop.load(Ordering::Relaxed) {
            match stream.write(forever) {
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}
