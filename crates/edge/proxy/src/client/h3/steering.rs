//! Which socket of a listener the kernel chooses for a datagram: the one of the connection.
//!
//! The sockets of a listener share an address (`SO_REUSEPORT`). By default the kernel chooses by the addresses and
//! ports of client and edge, so a client whose port has changed reaches another worker, which must pass each further
//! datagram on. A program of classic BPF (`SO_ATTACH_REUSEPORT_CBPF`), which needs no privileges, chooses by the
//! connection id: its first four bytes modulo the number of sockets are the slot of the socket, in the order in which
//! the sockets were bound. An endpoint makes only ids that lead to its own socket.
//!
//! Clients choose the ids of their first packets at random, so new connections are spread over all sockets. An observer
//! learns the slot of an id, but not which ids belong to one connection.

use std::io;
use std::os::fd::AsFd;

use libc::{
    BPF_ABS, BPF_ALU, BPF_B, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_MOD, BPF_RET, BPF_W, sock_filter,
};
use nix::sys::socket::{SetSockOpt as _, sockopt::AttachReusePortCbpf};

/// The slot of a socket among those of its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(super) index: u32,
    sockets: u32,
}

impl Slot {
    /// Returns the slot of the only socket of its address.
    #[cfg(test)]
    pub(super) const fn of_one() -> Self {
        Self {
            index: 0,
            sockets: 1,
        }
    }

    pub(super) fn new(index: usize, sockets: usize) -> Self {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Self {
            index: count(index),
            sockets: count(sockets.max(1)),
        }
    }

    /// Returns true if the kernel chooses the socket of this slot for datagrams with this id.
    pub(super) fn has(self, id: [u8; 8]) -> bool {
        let [a, b, c, d, ..] = id;
        u32::from_be_bytes([a, b, c, d]) % self.sockets == self.index
    }
}

/// Lets the kernel choose among `sockets` sockets by connection ids. `socket` is one of them; all must be bound.
pub(super) fn choose_by_id(socket: &impl AsFd, sockets: usize) -> io::Result<()> {
    // A single socket gets all datagrams. The kernel accepts no program for it.
    if sockets < 2 {
        return Ok(());
    }
    let sockets = u32::try_from(sockets).map_err(|_| io::ErrorKind::InvalidInput)?;
    attach(socket, &by_id(sockets))
}

/// Lets the kernel choose by addresses and ports. This is for an address that several processes share: slots would
/// count the sockets of all, and the program of one process would leave the others without datagrams.
pub(super) fn choose_by_address(socket: &impl AsFd) -> io::Result<()> {
    // The kernel does so if no socket has the number that the program returns.
    attach(socket, &[step(BPF_RET | BPF_K, 0, 0, u32::MAX)])
}

fn attach(socket: &impl AsFd, program: &[sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: program.len() as u16,
        // The kernel copies the program.
        filter: program.as_ptr().cast_mut(),
    };
    AttachReusePortCbpf.set(socket, &program)?;
    Ok(())
}

/// Returns the program that chooses by ids. It runs on the payload of UDP. If a load exceeds the payload, the result is
/// 0.
fn by_id(sockets: u32) -> [sock_filter; 8] {
    [
        step(BPF_LD | BPF_B | BPF_ABS, 0, 0, 0),
        step(BPF_JMP | BPF_JSET | BPF_K, 0, 3, LONG_HEADER.into()),
        // A long header: version and length of the id stand before it (RFC 8999 §5.1).
        step(BPF_LD | BPF_W | BPF_ABS, 0, 0, 6),
        step(BPF_ALU | BPF_MOD | BPF_K, 0, 0, sockets),
        step(BPF_RET | BPF_A, 0, 0, 0),
        // A short header: the id is next (§5.2).
        step(BPF_LD | BPF_W | BPF_ABS, 0, 0, 1),
        step(BPF_ALU | BPF_MOD | BPF_K, 0, 0, sockets),
        step(BPF_RET | BPF_A, 0, 0, 0),
    ]
}

fn step(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    }
}

/// The bit of the first byte of a packet that has a long header (RFC 8999 §5.1).
pub(super) const LONG_HEADER: u8 = 1 << 7;

/// `BPF_A` of the kernel: the result is the accumulator.
const BPF_A: u32 = 0x10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::net::UdpSocket;

    use socket2::SockRef;

    use super::*;
    use crate::client::h3::bound;

    /// Returns the socket that receives a datagram.
    fn receiver(sockets: &[UdpSocket], datagram: &[u8]) -> usize {
        let client = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        let addr = sockets[0].local_addr().expect("the socket is bound");
        client.send_to(datagram, addr).expect("the buffer is free");
        let mut buffer = [0; 64];
        // On loopback, a datagram has arrived when `send_to` returns.
        let mut received = sockets
            .iter()
            .map(|socket| socket.recv(&mut buffer).is_ok());
        received
            .position(|has| has)
            .expect("a socket has the datagram")
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]
        /// Method: each datagram comes from another port, so the kernel would choose any socket by the addresses.
        #[test]
        fn the_kernel_chooses_the_socket_of_the_id(sockets in 2usize..9, ids: [[u8; 8]; 16]) {
            let any_port = "127.0.0.1:0".parse().expect("the address is valid");
            let bound = bound::bind(any_port, sockets, false).expect("a port is free");
            choose_by_id(&bound[0], sockets).expect("the kernel takes the program");
            let bound: Vec<_> = bound.into_iter().map(UdpSocket::from).collect();
            for id in ids {
                let slots = (0..sockets).filter(|&at| Slot::new(at, sockets).has(id));
                let slots: Vec<_> = slots.collect();
                prop_assert_eq!(slots.len(), 1);
                let short = [&[0x40], &id[..], b"text"].concat();
                let long = [b"\xc0\0\0\0\x01\x08", &id[..], b"text"].concat();
                prop_assert_eq!(receiver(&bound, &short), slots[0]);
                prop_assert_eq!(receiver(&bound, &long), slots[0]);
            }
        }
    }

    /// Method: all datagrams have one id, so a choice by ids would lead to one socket of the first process.
    #[test]
    fn a_process_that_shares_the_address_of_another_gets_datagrams_too() {
        let any_port = "127.0.0.1:0".parse().expect("the address is valid");
        let bind = |addr, shared| bound::bind(addr, 2, shared).expect("the port is free");
        let mut bound = bind(any_port, false);
        choose_by_id(&bound[0], 2).expect("the kernel takes the program");
        let addr = SockRef::from(&bound[0]).local_addr();
        let addr = addr.expect("the socket is bound").as_socket();
        bound.extend(bind(addr.expect("an address of IPv4"), true));
        choose_by_address(&bound[2]).expect("the kernel takes the program");
        let bound: Vec<_> = bound.into_iter().map(UdpSocket::from).collect();
        // The second process gets none of 64 datagrams in one of 2^64 runs.
        let reached = (0..64).any(|_| receiver(&bound, b"\x40ABCDEFGH") >= 2);
        assert!(reached);
    }

    #[test]
    fn a_short_datagram_reaches_some_socket() {
        let any_port = "127.0.0.1:0".parse().expect("the address is valid");
        let bound = bound::bind(any_port, 3, false).expect("a port is free");
        choose_by_id(&bound[2], 3).expect("the kernel takes the program");
        let bound: Vec<_> = bound.into_iter().map(UdpSocket::from).collect();
        for datagram in [&b""[..], b"\x40", b"\xc0\0\0\0\x01\x08ABC"] {
            receiver(&bound, datagram);
        }
    }
}
