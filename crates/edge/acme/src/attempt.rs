//! The steps of one order (RFC 8555 §7.1.6, §7.4).

use std::time::Duration;

use crate::backoff::Failure;

/// The status of an order, as its issuer states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderStatus {
    /// The name is not validated yet.
    Pending,
    /// The name is validated.
    Ready,
    /// The issuer makes the certificate.
    Processing,
    /// The certificate can be downloaded.
    Valid,
    /// The order has failed.
    Invalid,
}

/// The next step of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Publish the answer to the challenge.
    Present,
    /// Inform the issuer that the answer is published.
    Respond,
    /// Wait, then query the order.
    Poll(Duration),
    /// Make a key, persist it, and send a request for a certificate.
    Finalize,
    /// Download the certificate, and store it with its key.
    Download,
    /// The order has failed. Remove the answer to the challenge.
    Fail(Failure),
}

/// One order: tells which step is next. The caller carries the step out and reports its result.
#[derive(Clone, Debug)]
pub struct Attempt {
    status: OrderStatus,
    is_presented: bool,
    is_responded: bool,
    is_finalized: bool,
    /// True after this attempt has sent a request for a certificate.
    is_sent: bool,
    waited: Duration,
    polls: u32,
    retry_after: Option<Duration>,
}

impl Attempt {
    /// Begins with the status of a new order, or of one that another process began. `has_key` is true if the key of the
    /// earlier request for a certificate is still there.
    pub const fn new(status: OrderStatus, has_key: bool) -> Self {
        Self {
            status,
            is_presented: false,
            is_responded: false,
            is_finalized: has_key,
            is_sent: false,
            waited: Duration::ZERO,
            polls: 0,
            retry_after: None,
        }
    }

    /// Returns the next step.
    pub fn next(&self) -> Step {
        match self.status {
            OrderStatus::Pending if !self.is_presented => Step::Present,
            OrderStatus::Pending if !self.is_responded => Step::Respond,
            OrderStatus::Pending | OrderStatus::Processing => self.poll(),
            // The issuer states an old status: a second request would be refused.
            OrderStatus::Ready if self.is_sent => self.poll(),
            // The issuer has not got the request for a certificate, even if the key is there.
            OrderStatus::Ready => Step::Finalize,
            OrderStatus::Valid if self.is_finalized => Step::Download,
            // The key of the certificate is lost.
            OrderStatus::Valid => Step::Fail(Failure::Local),
            OrderStatus::Invalid => Step::Fail(Failure::Validation),
        }
    }

    /// Records that the answer is published.
    pub const fn presented(&mut self) {
        self.is_presented = true;
    }

    /// Records that the issuer is informed.
    pub const fn responded(&mut self) {
        self.is_responded = true;
    }

    /// Records the status after the request for a certificate.
    pub const fn finalized(&mut self, status: OrderStatus) {
        self.is_finalized = true;
        self.is_sent = true;
        self.polls = 0;
        self.status = status;
    }

    /// Records the status after a wait of [`Step::Poll`]. `retry_after` is the wish of the issuer.
    pub fn polled(&mut self, status: OrderStatus, retry_after: Option<Duration>) {
        if let Step::Poll(delay) = self.next() {
            self.waited += delay;
        }
        self.polls = self.polls.saturating_add(1);
        self.status = status;
        self.retry_after = retry_after;
    }

    fn poll(&self) -> Step {
        if self.waited >= WAIT_MAX {
            // The challenge may still be published, so the issuer is slow.
            return Step::Fail(Failure::Issuer);
        }
        let delay = Duration::from_millis(250 << self.polls.min(6));
        Step::Poll(
            delay
                .max(self.retry_after.unwrap_or_default())
                .min(POLL_MAX),
        )
    }
}

/// The longest wait for an order. Validation takes seconds.
const WAIT_MAX: Duration = Duration::from_secs(300);

/// The longest wait between two polls: 250 ms doubled six times, rounded down.
const POLL_MAX: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;

    /// Carries out the steps as an issuer would that answers with `statuses`, one for each poll or finalization.
    fn run(mut attempt: Attempt, statuses: &[OrderStatus]) -> Vec<Step> {
        let mut statuses = statuses.iter();
        let mut steps = Vec::new();
        loop {
            let step = attempt.next();
            steps.push(step);
            match step {
                Step::Present => attempt.presented(),
                Step::Respond => attempt.responded(),
                Step::Poll(_) => match statuses.next() {
                    Some(status) => attempt.polled(*status, None),
                    None => return steps,
                },
                Step::Finalize => match statuses.next() {
                    Some(status) => attempt.finalized(*status),
                    None => return steps,
                },
                Step::Download | Step::Fail(_) => return steps,
            }
        }
    }

    const fn poll(millis: u64) -> Step {
        Step::Poll(Duration::from_millis(millis))
    }

    #[test]
    fn a_new_order_is_presented_polled_finalized_and_downloaded() {
        use OrderStatus::{Pending, Processing, Ready, Valid};
        let attempt = Attempt::new(Pending, false);
        assert_eq!(
            run(attempt, &[Pending, Ready, Processing, Valid]),
            [
                Step::Present,
                Step::Respond,
                poll(250),
                poll(500),
                Step::Finalize,
                poll(250),
                Step::Download
            ]
        );
    }

    /// A status that no challenge precedes: the issuer reuses an authorisation.
    #[test]
    fn an_order_that_is_ready_at_once_is_finalized() {
        let steps = run(
            Attempt::new(OrderStatus::Ready, false),
            &[OrderStatus::Valid],
        );
        assert_eq!(steps, [Step::Finalize, Step::Download]);
    }

    #[test]
    fn a_request_for_a_certificate_is_sent_once_even_if_the_issuer_states_an_old_status() {
        use OrderStatus::{Ready, Valid};
        let steps = run(Attempt::new(Ready, false), &[Ready, Ready, Valid]);
        let expected = [Step::Finalize, poll(250), poll(500), Step::Download];
        assert_eq!(steps, expected);
    }

    #[test]
    fn an_order_of_a_killed_process_is_continued_if_its_key_is_there() {
        let first = |status, has_key| Attempt::new(status, has_key).next();
        assert_eq!(first(OrderStatus::Pending, true), Step::Present);
        assert_eq!(first(OrderStatus::Ready, true), Step::Finalize);
        assert_eq!(first(OrderStatus::Processing, true), poll(250));
        assert_eq!(first(OrderStatus::Valid, true), Step::Download);
        assert_eq!(first(OrderStatus::Valid, false), Step::Fail(Failure::Local));
        assert_eq!(
            first(OrderStatus::Invalid, true),
            Step::Fail(Failure::Validation)
        );
    }

    /// An issuer that never decides, and one that demands waits of a day.
    #[test]
    fn the_wait_for_an_order_is_bounded() {
        for retry_after in [None, Some(Duration::from_secs(86_400))] {
            let mut attempt = Attempt::new(OrderStatus::Processing, true);
            let mut waited = Duration::ZERO;
            while let Step::Poll(delay) = attempt.next() {
                assert!(delay <= POLL_MAX);
                waited += delay;
                attempt.polled(OrderStatus::Processing, retry_after);
            }
            assert_eq!(attempt.next(), Step::Fail(Failure::Issuer));
            assert!(
                (WAIT_MAX..WAIT_MAX + POLL_MAX).contains(&waited),
                "{waited:?}"
            );
        }
    }
}
