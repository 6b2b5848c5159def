//! The socket between the two processes of an upgrade. Each message is JSON, and may carry descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde_json::Value;

/// One end of the socket.
pub(super) struct Channel(OwnedFd);

impl Channel {
    /// Returns the ends of the two processes.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        // This kind of socket keeps the borders of messages, and reports the end of the other process.
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Self(ours), theirs))
    }

    pub(super) fn new(end: OwnedFd) -> Self {
        Self(end)
    }

    /// Sends a message with at most [`DESCRIPTORS_MAX`] descriptors.
    pub(super) fn send(&self, message: &Value, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let text = message.to_string();
        let mut space = [MaybeUninit::uninit(); SPACE];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let bytes = [IoSlice::new(text.as_bytes())];
        sendmsg(self.0.as_fd(), &bytes, &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Returns the next message with its descriptors, or `None` if the other process has closed its end.
    pub(super) fn receive(&self) -> io::Result<Option<(Value, Vec<OwnedFd>)>> {
        let mut bytes = vec![0; MESSAGE_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); SPACE];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            match recvmsg(
                self.0.as_fd(),
                &mut parts,
                &mut control,
                RecvFlags::CMSG_CLOEXEC,
            ) {
                Err(rustix::io::Errno::INTR) => {}
                other => break other?,
            }
        };
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.extend(received);
            }
        }
        if received.bytes == 0 {
            return Ok(None);
        }
        let message = serde_json::from_slice(&bytes[..received.bytes])?;
        Ok(Some((message, descriptors)))
    }

    /// Limits the wait for the next messages. `None`: no limit.
    pub(super) fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        Ok(set_socket_timeout(&self.0, Timeout::Recv, timeout)?)
    }

    /// Limits the wait until the other process has read enough to send the next message. `None`: no limit.
    pub(super) fn set_send_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        Ok(set_socket_timeout(&self.0, Timeout::Send, timeout)?)
    }
}

/// The most descriptors in one message. The kernel accepts 253.
pub(super) const DESCRIPTORS_MAX: usize = 128;

/// The space for the descriptors of a message.
const SPACE: usize = rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX));

/// The longest message. A socket accepts 208 KiB by default. A message has at most a request's target in it, or purges
/// of 64 KiB.
const MESSAGE_BYTES_MAX: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use serde_json::json;

    use super::*;

    #[test]
    fn messages_arrive_in_order_with_their_descriptors_and_the_end_is_reported() {
        let (ours, theirs) = Channel::pair().expect("a pair");
        let theirs = Channel::new(theirs);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let fds = vec![listener.as_fd(); DESCRIPTORS_MAX];
        ours.send(&json!({"a": 1}), &fds).expect("sent");
        ours.send(&json!({"b": "x".repeat(32 << 10)}), &[])
            .expect("sent");
        drop(ours);
        let (message, received) = theirs.receive().expect("read").expect("a message");
        assert_eq!(
            (message, received.len()),
            (json!({"a": 1}), DESCRIPTORS_MAX)
        );
        let copy = TcpListener::from(received.into_iter().next().expect("a descriptor"));
        assert_eq!(copy.local_addr().ok(), listener.local_addr().ok());
        let (message, received) = theirs.receive().expect("read").expect("a message");
        assert_eq!(
            (message["b"].as_str().map(str::len), received.len()),
            (Some(32 << 10), 0)
        );
        assert!(theirs.receive().expect("read").is_none());
    }

    #[test]
    fn the_wait_for_a_message_is_limited() {
        let (ours, _theirs) = Channel::pair().expect("a pair");
        ours.set_timeout(Some(Duration::from_millis(10)))
            .expect("set");
        let error = ours.receive().expect_err("no message");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn the_wait_for_a_process_that_reads_nothing_is_limited() {
        let (ours, _theirs) = Channel::pair().expect("a pair");
        ours.set_send_timeout(Some(Duration::from_millis(10)))
            .expect("set");
        let message = json!("x".repeat(32 << 10));
        let error = (0..10_000).find_map(|_| ours.send(&message, &[]).err());
        assert_eq!(
            error.map(|error| error.kind()),
            Some(io::ErrorKind::WouldBlock)
        );
    }
}
