use proptest::prelude::*;

use super::*;

const HEAD: DatagramHead = DatagramHead {
    source: SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 4433),
    destination: None,
    ecn: None,
};

/// The slot of the only socket.
const ALONE: Slot = Slot::of_one();

/// Returns a datagram with a short header for a connection of `endpoint`.
fn datagram(routes: &Routes, endpoint: EndpointName) -> Vec<u8> {
    [&[0x40], &routes.new_id(endpoint)[..], b"text"].concat()
}

/// Receives a datagram, which must be there.
fn receive(inbox: &Inbox) -> Vec<u8> {
    let mut buffer = [0; 2048];
    let received = inbox.receive(&mut buffer).expect("a message arrived");
    let meta = received.expect("the message is a datagram");
    assert_eq!(meta.addr, HEAD.source);
    buffer[..meta.len].to_vec()
}

#[test]
fn a_datagram_of_another_worker_reaches_its_inbox_until_the_endpoint_closes() {
    let routes = Routes::new();
    let inboxes = [(); 3].map(|()| routes.open_inbox(ALONE).expect("a socket pair"));
    let [first, second, third] = inboxes;
    let datagram = datagram(&routes, second.endpoint);
    assert_eq!(routes.owner(second.endpoint, &datagram), Owner::Receiver);
    let owner = Owner::Other(second.endpoint);
    assert_eq!(routes.owner(first.endpoint, &datagram), owner);
    assert_eq!(
        routes.pass(second.endpoint, HEAD, &datagram),
        Passed::ToWorker
    );
    assert_eq!(receive(&second), datagram);
    let closed = second.endpoint;
    drop(second);
    assert_eq!(routes.pass(closed, HEAD, &datagram), Passed::Gone);
    // The next endpoint gets the number.
    assert_eq!(
        routes.open_inbox(ALONE).expect("a socket pair").endpoint,
        closed
    );
    drop(third);
}

#[test]
fn a_datagram_whose_id_is_not_ours_is_dropped_unless_it_may_begin_a_connection() {
    let routes = Routes::new();
    let inbox = routes.open_inbox(ALONE).expect("a socket pair");
    let not_ours = (0..).map(u64::to_le_bytes);
    let mut not_ours = not_ours.filter(|id| routes.keys.ids.name(*id).is_none());
    let id = not_ours.next().expect("most ids are not ours");
    let short = [&[0x40], &id[..]].concat();
    assert_eq!(routes.owner(inbox.endpoint, &short), Owner::Unknown);
    let long = [b"\xc0\0\0\0\x01\x08", &id[..]].concat();
    assert_eq!(routes.owner(inbox.endpoint, &long), Owner::Receiver);
}

#[test]
fn a_full_inbox_loses_datagrams_and_has_space_again_after_a_receipt() {
    let routes = Routes::new();
    let inbox = routes.open_inbox(ALONE).expect("a socket pair");
    let datagram = [datagram(&routes, inbox.endpoint), vec![0; 1200]].concat();
    let pass = || routes.pass(inbox.endpoint, HEAD, &datagram);
    // The system charges each datagram at least its bytes.
    let queued = (0..=2 * INBOX_BYTES / datagram.len()).take_while(|_| pass() == Passed::ToWorker);
    let queued = queued.count();
    assert!(queued <= 2 * INBOX_BYTES / datagram.len(), "no bound");
    assert_eq!(pass(), Passed::Full);
    for _ in 0..queued {
        assert_eq!(receive(&inbox), datagram);
    }
    assert_eq!(pass(), Passed::ToWorker);
}

#[test]
fn a_datagram_of_a_later_process_is_dropped_unless_it_may_begin_a_connection() {
    let first = Routes::new();
    let own = first.open_inbox(ALONE).expect("a socket pair").endpoint;
    let second = Routes::after(first.identity(), []);
    let later = second.open_inbox(ALONE).expect("a socket pair").endpoint;
    let short = datagram(&second, later);
    assert_eq!(first.owner(own, &short), Owner::Unknown);
    let long = [b"\xc0\0\0\0\x01\x08", &short[1..]].concat();
    assert_eq!(first.owner(own, &long), Owner::Receiver);
}

#[test]
fn an_answer_to_a_retry_belongs_to_the_endpoint_that_receives_it() {
    let first = Routes::new();
    let inbox = first.open_inbox(ALONE).expect("a socket pair");
    let other = first.open_inbox(ALONE).expect("a socket pair").endpoint;
    let answer = first.answer_to_retry(inbox.endpoint);
    assert_eq!(first.owner(inbox.endpoint, &answer), Owner::Receiver);
    assert_eq!(first.owner(other, &answer), Owner::Receiver);
    let second = Routes::after(first.identity(), first.inboxes().expect("copies"));
    let newest = second.open_inbox(ALONE).expect("a socket pair").endpoint;
    assert_eq!(second.owner(newest, &answer), Owner::Receiver);
}

/// Method: a datagram is larger than the buffer of the socket, which Linux doubles.
#[test]
fn an_endpoint_that_cannot_take_a_datagram_is_not_gone() {
    let routes = Routes::new();
    let inbox = routes.open_inbox(ALONE).expect("a socket pair");
    let datagram = vec![0; 2 * INBOX_BYTES];
    let passed = routes.pass(inbox.endpoint, HEAD, &datagram);
    assert_eq!(passed, Passed::Full);
}

/// Method: three processes follow each other. The first one ends last.
#[test]
fn a_process_passes_datagrams_to_all_processes_before_it_that_have_not_ended() {
    let first = Routes::new();
    let inbox = first.open_inbox(ALONE).expect("a socket pair");
    let second = Routes::after(first.identity(), first.inboxes().expect("copies"));
    let ended = second.open_inbox(ALONE).expect("a socket pair");
    let third = Routes::after(second.identity(), second.inboxes().expect("copies"));
    let own = third.open_inbox(ALONE).expect("a socket pair");
    let datagram = datagram(&first, inbox.endpoint);
    let owner = Owner::Other(inbox.endpoint);
    assert_eq!(third.owner(own.endpoint, &datagram), owner);
    let pass = |to| third.pass(to, HEAD, &datagram);
    let open = || third.earlier.read().map_or(0, |earlier| earlier.len());
    assert_eq!(pass(inbox.endpoint), Passed::ToProcess);
    assert_eq!(receive(&inbox), datagram);
    let name = ended.endpoint;
    assert_eq!((pass(name), open()), (Passed::ToProcess, 2));
    drop(ended);
    assert_eq!((pass(name), open()), (Passed::Gone, 2));
    third.close_ended();
    assert_eq!((pass(name), open()), (Passed::Gone, 1));
    let names = third.inboxes().expect("copies").into_iter();
    let mut names: Vec<_> = names.map(|(name, _)| name.generation).collect();
    names.sort_unstable();
    assert_eq!(names, [0, 2]);
}

proptest! {
    #[test]
    fn every_message_is_handled(message in proptest::collection::vec(any::<u8>(), 0..80)) {
        check_datagram(&message);
    }
}

#[test]
fn a_process_that_begins_to_read_wakes_its_endpoints() {
    let before = Routes::new();
    let routes = Routes::after(before.identity(), []);
    let inbox = routes.open_inbox(ALONE).expect("a socket pair");
    assert!(before.reads_sockets() && !routes.reads_sockets());
    before.leave_sockets();
    routes.read_sockets();
    assert!(!before.reads_sockets() && routes.reads_sockets());
    let mut buffer = [0; 64];
    let woken = inbox.receive(&mut buffer).expect("a message arrived");
    assert_eq!(woken.map(|meta| meta.len), Some(0));
}
