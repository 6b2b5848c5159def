//! The steps of a request that no fresh stored response answers, decided from values alone. `fetch` carries them out.
//!
//! [`first_step`] chooses the kind of the fetch. [`follow_step`] decides the step after a shared fetch for which the
//! request has waited. A request follows at most [`FOLLOWS_MAX`](super::follow::FOLLOWS_MAX) fetches, then it fetches alone, so
//! it ends.

/// Facts about a request and its URL.
#[derive(Clone, Copy, Debug)]
pub(super) struct MissFacts {
    pub(super) is_head: bool,
    pub(super) has_range: bool,
    pub(super) is_conditional: bool,
    pub(super) has_content: bool,
    /// The origin decides about each client, so no request is answered by the fetch of another one.
    pub(super) is_checked: bool,
    /// The range can be fetched in slices.
    pub(super) has_part: bool,
    /// The HEAD requests of the URL are fetched with GET, so that the response is stored.
    pub(super) fetches_body: bool,
    /// The stored response to validate.
    pub(super) stale: Option<Stale>,
}

/// A stored response that the origin has to validate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stale {
    /// The response is too old. Otherwise the request or a rule demands the validation.
    pub(super) is_reason: bool,
    /// The last validation failed a moment ago, and the response may be served instead of an error.
    pub(super) backs_off: bool,
}

/// How a request begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstStep {
    /// Sends HEAD, and shares the response with other HEAD requests.
    Head,
    /// Forwards the request. If `may_follow`, a fetch that is under way may have the range.
    Pass { may_follow: bool },
    /// Validates the stored response with HEAD.
    ValidateHead,
    /// Answers with the stale response.
    ServeStale,
    /// Shares a fetch with other requests for the key. `for_head`: the fetch gets the body for a HEAD.
    Share { for_head: bool },
}

/// Returns the first step.
pub(super) fn first_step(facts: MissFacts) -> FirstStep {
    // Validators and ranges belong to the client, so its request is not replaced by a simpler one.
    let is_simple = !facts.has_range && !facts.is_conditional;
    match facts.stale {
        None if facts.is_head && !facts.has_range && !facts.is_checked => {
            if facts.fetches_body {
                FirstStep::Share { for_head: true }
            } else if is_simple && !facts.has_content {
                FirstStep::Head
            } else if facts.has_part {
                FirstStep::Share { for_head: false }
            } else {
                FirstStep::Pass { may_follow: false }
            }
        }
        None if !facts.has_part && (facts.is_head || facts.has_range) => FirstStep::Pass {
            may_follow: !facts.is_head && !facts.is_checked,
        },
        Some(stale) if facts.is_head && is_simple && !stale.backs_off => FirstStep::ValidateHead,
        Some(stale) if stale.is_reason && stale.backs_off => FirstStep::ServeStale,
        _ => FirstStep::Share { for_head: false },
    }
}

/// The result of the shared fetch that a request has followed: the head `H` of a body that arrives, a stored response
/// `S`, or a failure `F`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Followed<H, S, F> {
    Head {
        head: H,
        fit: Fit,
        /// The range is far ahead of the bytes that have arrived.
        is_far: bool,
    },
    Stored {
        stored: S,
        fit: Fit,
        /// The response is stale, and this request does not accept it.
        is_too_stale: bool,
    },
    /// The response is for its leader alone.
    Released,
    Failed(F),
    /// No head arrived until the deadline.
    TimedOut,
}

/// The relation of a response to a request that did not lead its fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    Answers,
    /// It is another variant, or belongs to a URL that the rule of the response does not treat as equal.
    OtherVariant,
    /// A purge has come after the fetch began.
    Purged,
}

/// The next step of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FollowStep<H, S, F> {
    /// Reads the body of the shared fetch.
    Read(H),
    /// Answers with the stored response.
    Answer(S),
    /// Asks the origin for the range.
    AskForRange(H),
    /// Computes the key of its variant, looks it up, and joins a fetch for it.
    LookUpAgain,
    /// Joins a newer fetch. Later requests do not join the purged one.
    JoinNewer,
    /// Joins the other requests that waited: one of them leads the next fetch.
    JoinAfterFailure,
    /// Uses a fresh response that is now stored, or fetches alone.
    FindOrFetchAlone,
    FetchAlone,
    /// Answers with the failure of the shared fetch.
    Refuse(F),
}

/// Returns the next step. `is_last`: the request may follow no further fetch.
pub(super) fn follow_step<H, S, F>(
    followed: Followed<H, S, F>,
    is_last: bool,
) -> FollowStep<H, S, F> {
    match followed {
        Followed::Head { fit, .. } | Followed::Stored { fit, .. } if fit == Fit::Purged => {
            FollowStep::JoinNewer
        }
        Followed::Head { fit, .. } | Followed::Stored { fit, .. } if fit == Fit::OtherVariant => {
            FollowStep::LookUpAgain
        }
        Followed::Head { head, is_far, .. } => match is_far {
            true => FollowStep::AskForRange(head),
            false => FollowStep::Read(head),
        },
        Followed::Stored { is_too_stale, .. } if is_too_stale => FollowStep::FetchAlone,
        Followed::Stored { stored, .. } => FollowStep::Answer(stored),
        Followed::Released => FollowStep::FindOrFetchAlone,
        Followed::Failed(failure) if is_last => FollowStep::Refuse(failure),
        Followed::Failed(_) => FollowStep::JoinAfterFailure,
        Followed::TimedOut => FollowStep::FetchAlone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns all requests.
    fn all_facts() -> impl Iterator<Item = MissFacts> {
        (0..1u32 << 10).map(|bits| {
            let bit = |nth: u32| bits >> nth & 1 == 1;
            MissFacts {
                is_head: bit(0),
                has_range: bit(1),
                is_conditional: bit(2),
                has_content: bit(3),
                is_checked: bit(4),
                has_part: bit(5),
                fetches_body: bit(6),
                stale: bit(7).then(|| Stale {
                    is_reason: bit(8),
                    backs_off: bit(9),
                }),
            }
        })
    }

    #[test]
    fn the_facts_of_a_request_decide_its_first_step() {
        for facts in all_facts() {
            let step = first_step(facts);
            match step {
                FirstStep::Head => assert!(
                    facts.is_head
                        && !(facts.has_range || facts.is_conditional || facts.has_content),
                    "only a bare HEAD is sent as HEAD: {facts:?}"
                ),
                FirstStep::Pass { may_follow } => {
                    assert!(facts.is_head || facts.has_range, "{facts:?}");
                    assert!(!may_follow || !facts.is_checked, "{facts:?}");
                }
                FirstStep::ValidateHead => assert!(
                    facts.is_head && facts.stale.is_some() && !facts.has_range,
                    "{facts:?}"
                ),
                FirstStep::ServeStale => {
                    assert!(
                        facts.stale.is_some_and(|stale| stale.backs_off),
                        "{facts:?}"
                    );
                }
                FirstStep::Share { for_head } => {
                    assert!(
                        !for_head || facts.is_head && facts.fetches_body,
                        "{facts:?}"
                    );
                }
            }
            // A stored response is validated or served. A request is passed beside it in no case.
            let is_passed = matches!(step, FirstStep::Pass { .. } | FirstStep::Head);
            assert!(!is_passed || facts.stale.is_none(), "{facts:?}");
            // A GET for the whole response is always shared, unless a stale response answers it.
            let is_plain = !facts.is_head && !facts.has_range;
            let is_shared = matches!(step, FirstStep::Share { .. } | FirstStep::ServeStale);
            assert!(!is_plain || is_shared, "{facts:?}");
        }
    }

    /// Returns all results of a shared fetch.
    fn all_followed() -> Vec<Followed<(), (), ()>> {
        let mut all = vec![Followed::Released, Followed::Failed(()), Followed::TimedOut];
        for fit in [Fit::Answers, Fit::OtherVariant, Fit::Purged] {
            for flag in [false, true] {
                let (head, stored) = ((), ());
                all.push(Followed::Head {
                    head,
                    fit,
                    is_far: flag,
                });
                all.push(Followed::Stored {
                    stored,
                    fit,
                    is_too_stale: flag,
                });
            }
        }
        all
    }

    #[test]
    fn only_a_response_that_fits_answers_a_follower() {
        for followed in all_followed() {
            for is_last in [false, true] {
                let step = follow_step(followed, is_last);
                let fits = matches!(
                    followed,
                    Followed::Head {
                        fit: Fit::Answers,
                        ..
                    } | Followed::Stored {
                        fit: Fit::Answers,
                        ..
                    }
                );
                let uses_it = matches!(
                    step,
                    FollowStep::Read(()) | FollowStep::Answer(()) | FollowStep::AskForRange(())
                );
                assert!(!uses_it || fits, "{followed:?}");
                let is_far = matches!(followed, Followed::Head { is_far: true, .. });
                assert!(step != FollowStep::Read(()) || !is_far, "{followed:?}");
                let is_stale = matches!(
                    followed,
                    Followed::Stored {
                        is_too_stale: true,
                        ..
                    }
                );
                assert!(step != FollowStep::Answer(()) || !is_stale, "{followed:?}");
            }
        }
    }

    #[test]
    fn an_error_is_answered_only_after_the_last_fetch() {
        for followed in all_followed() {
            assert_ne!(follow_step(followed, false), FollowStep::Refuse(()));
            let is_failure = matches!(followed, Followed::Failed(()));
            let refuses = follow_step(followed, true) == FollowStep::Refuse(());
            assert_eq!(refuses, is_failure, "{followed:?}");
        }
    }
}
