//! The congestion control of sockets on loopback.

use std::net::IpAddr;

use socket2::Socket;

/// Turns BBR's pacing off on a socket with a loopback address, before it is bound or connected. Accepted sockets inherit the choice.
///
/// BBR spreads segments over time, by timers, to keep the queue before a slow link short. Loopback has no such queue, and the timers
/// take more than half of the CPU time of sending (`bench/runs/2026-11-22-disk-loopback`, `bench/runs/2026-11-22-link-speed-sixth`).
/// Every process may choose Reno; it differs from other algorithms by its answer to losses, which loopback does not have. A
/// socket that began with BBR stays paced whatever is chosen later.
pub fn disable_loopback_pacing(socket: &Socket, addr: IpAddr) {
    let is_paced = |name: Vec<u8>| name.starts_with(b"bbr");
    if addr.is_loopback() && socket.tcp_congestion().is_ok_and(is_paced) {
        // On a kernel without Reno the socket stays paced, and works.
        _ = socket.set_tcp_congestion(b"reno");
    }
}
