//! The congestion control of TCP: the default of the system, and that of sockets on loopback.

use std::net::IpAddr;

use socket2::{Domain, Socket, Type};

/// Disables BBR pacing on a socket with a loopback address. The caller must call this before the socket is
/// bound or connected, because a socket that started with BBR stays paced. Accepted sockets inherit the setting
/// of their listener.
///
/// BBR spaces segments by timers to keep the queue before a slow link short. Loopback has no such queue, and
/// the timers take more than half of the CPU time of sending (`bench/runs/2026-11-22-disk-loopback`). The
/// socket uses Reno instead, which is available to every process. Congestion-control algorithms without pacing
/// differ only in their reaction to losses, and loopback has no losses.
pub fn disable_loopback_pacing(socket: &Socket, addr: IpAddr) {
    if addr.is_loopback() && socket.tcp_congestion().is_ok_and(is_bbr) {
        // On a kernel without Reno the socket stays paced but works.
        _ = socket.set_tcp_congestion(b"reno");
    }
}

/// Returns true if the system's default congestion control is BBR.
pub fn is_bbr_default() -> bool {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None);
    socket.is_ok_and(|socket| socket.tcp_congestion().is_ok_and(is_bbr))
}

fn is_bbr(name: Vec<u8>) -> bool {
    name.starts_with(b"bbr")
}
