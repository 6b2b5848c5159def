//! The change of configuration that predictions recommend.

/// The prediction for one policy and capacity of memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The policy.
    pub policy: String,
    /// The capacity of memory.
    pub capacity_bytes: u64,
    /// True for the present policy and capacity.
    pub is_present: bool,
    /// Hits per request.
    pub hit_ratio: f64,
    /// The standard error of the hit ratio.
    pub hit_ratio_error: f64,
    /// Bytes of hits per byte of all responses.
    pub byte_hit_ratio: f64,
    /// Bytes of bodies that the origin would send, per second.
    pub origin_bytes_per_second: f64,
    /// True if the simulated cache has never been full, so that the hit ratio is a lower bound.
    pub is_filling: bool,
}

/// The recommended changes. Both are possible at the same time.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// The present setting.
    pub present: Setting,
    /// The policy that is best with the present memory, if it is clearly better than the present one.
    pub policy: Option<Setting>,
    /// The least memory, with its policy, that is within [`NEAR_BEST`] of the best of all settings, if it brings
    /// clearly more hits than the best policy with the present memory.
    pub memory: Option<Setting>,
    /// Less memory with nearly as many hits as the present setting, by its policy, if no more memory is recommended and
    /// the present memory has been full.
    pub less_memory: Option<Setting>,
}

/// The prediction for one admission rule and capacity of the disk.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskSetting {
    /// The admission rule.
    pub admission: String,
    /// The capacity of the disk.
    pub capacity_bytes: u64,
    /// True for the present rule and capacity.
    pub is_present: bool,
    /// Hits per request, in memory or on disk.
    pub hit_ratio: f64,
    /// The standard error of the hit ratio.
    pub hit_ratio_error: f64,
    /// Bytes of bodies that the origin would send, per second.
    pub origin_bytes_per_second: f64,
    /// Bytes that are written to the disk, per second.
    pub disk_bytes_per_second: f64,
    /// True if the simulated disk has never been full, so that the hit ratio is a lower bound.
    pub is_filling: bool,
}

/// Returns the recommended disk: the least capacity that is within [`NEAR_BEST`] of the best of all settings, with the
/// rule that writes least there. `None` without settings.
pub fn recommended_disk<'a>(
    settings: impl IntoIterator<Item = &'a DiskSetting, IntoIter: Clone>,
) -> Option<&'a DiskSetting> {
    let settings = settings.into_iter();
    let top = settings.clone().map(|setting| setting.hit_ratio);
    let top = top.reduce(f64::max)?;
    let near_top = || {
        let settings = settings.clone();
        settings.filter(move |setting| setting.hit_ratio >= top - NEAR_BEST)
    };
    let least = near_top().map(|setting| setting.capacity_bytes).min()?;
    let of_least = near_top().filter(|setting| setting.capacity_bytes == least);
    of_least.min_by(|a, b| a.disk_bytes_per_second.total_cmp(&b.disk_bytes_per_second))
}

/// Returns the disk to change to: the recommended one, if it is clearly better than the present one, or as good with
/// at most 80 % of its writes or with less capacity. While the present one fills, smaller ones are left out: they have
/// the same hits until they are full.
pub fn advise_disk(settings: &[DiskSetting]) -> Option<&DiskSetting> {
    let present = settings.iter().find(|setting| setting.is_present)?;
    let candidates = settings
        .iter()
        .filter(|setting| !present.is_filling || setting.capacity_bytes >= present.capacity_bytes);
    let new = recommended_disk(candidates)?;
    let gain = new.hit_ratio - present.hit_ratio;
    let error = new.hit_ratio_error.hypot(present.hit_ratio_error);
    let is_better = gain >= GAIN_MIN.max(2.0 * error);
    let saves = new.capacity_bytes < present.capacity_bytes
        || (new.capacity_bytes == present.capacity_bytes
            && new.disk_bytes_per_second <= FEWER_WRITES * present.disk_bytes_per_second);
    (is_better || (saves && gain >= -SMALL_LOSS)).then_some(new)
}

/// Returns the recommended changes. `None` if no setting is the present one.
pub fn advise(settings: &[Setting]) -> Option<Advice> {
    let present = settings.iter().find(|setting| setting.is_present)?;
    let with_present_memory = settings
        .iter()
        .filter(|setting| setting.capacity_bytes == present.capacity_bytes);
    let policy = best(with_present_memory).filter(|best| is_clearly_better(best, present));
    let base = policy.unwrap_or(present);
    let top = best(settings.iter())?;
    let near_top = settings
        .iter()
        .filter(|setting| setting.hit_ratio >= top.hit_ratio - NEAR_BEST);
    let least_bytes = near_top
        .clone()
        .map(|setting| setting.capacity_bytes)
        .min()?;
    let mut near_top = near_top.filter(|setting| setting.capacity_bytes == least_bytes);
    // If two policies are as good, the one that is recommended or present.
    let of_base = near_top
        .clone()
        .find(|setting| setting.policy == base.policy);
    let memory = of_base
        .or_else(|| near_top.next())
        .filter(|setting| setting.capacity_bytes > present.capacity_bytes)
        .filter(|setting| is_clearly_better(setting, base));
    let less = settings.iter().filter(|setting| {
        setting.policy == base.policy
            && setting.capacity_bytes < present.capacity_bytes
            && setting.hit_ratio >= base.hit_ratio - SMALL_LOSS
    });
    let less_memory = less
        .min_by_key(|setting| setting.capacity_bytes)
        .filter(|_| memory.is_none() && !present.is_filling);
    Some(Advice {
        present: present.clone(),
        policy: policy.cloned(),
        memory: memory.cloned(),
        less_memory: less_memory.cloned(),
    })
}

/// Returns the least memory that is within [`NEAR_BEST`] of the best of all settings, with its best policy.
pub fn recommended(settings: &[Setting]) -> Option<&Setting> {
    let top = best(settings.iter())?.hit_ratio;
    let near_top = || {
        let settings = settings.iter();
        settings.filter(move |setting| setting.hit_ratio >= top - NEAR_BEST)
    };
    let least = near_top().map(|setting| setting.capacity_bytes).min()?;
    best(near_top().filter(|setting| setting.capacity_bytes == least))
}

fn best<'s>(settings: impl Iterator<Item = &'s Setting>) -> Option<&'s Setting> {
    settings.reduce(|best, setting| {
        if setting.hit_ratio > best.hit_ratio {
            setting
        } else {
            best
        }
    })
}

/// Returns true if the difference is worth a change, and is not due to chance.
fn is_clearly_better(new: &Setting, old: &Setting) -> bool {
    let error = new.hit_ratio_error.hypot(old.hit_ratio_error);
    new.hit_ratio - old.hit_ratio >= GAIN_MIN.max(2.0 * error)
}

/// A setting this near to the best one is as good: a point of hit ratio.
pub const NEAR_BEST: f64 = 0.01;

/// The least gain that is worth a change.
const GAIN_MIN: f64 = 0.005;

/// The share of the present writes to disk from which fewer writes are a reason for a change.
const FEWER_WRITES: f64 = 0.8;

/// The largest loss at which less memory or fewer writes are recommended.
const SMALL_LOSS: f64 = 0.002;

#[cfg(test)]
mod tests {
    use super::*;

    /// Settings of 1, 2, 4 and so on bytes for each policy. The present one has 2 bytes and the first policy.
    fn settings(error: f64, curves: &[(&str, &[f64])]) -> Vec<Setting> {
        let rows = curves
            .iter()
            .enumerate()
            .flat_map(|(row, (policy, curve))| {
                curve
                    .iter()
                    .enumerate()
                    .map(move |(at, hit_ratio)| Setting {
                        policy: (*policy).to_owned(),
                        capacity_bytes: 1 << at,
                        is_present: row == 0 && at == 1,
                        hit_ratio: *hit_ratio,
                        hit_ratio_error: error,
                        byte_hit_ratio: *hit_ratio,
                        origin_bytes_per_second: 1.0,
                        is_filling: false,
                    })
            });
        rows.collect()
    }

    fn names(settings: &[Setting]) -> [Option<(String, u64)>; 3] {
        let advice = advise(settings).expect("a present setting");
        [advice.policy, advice.memory, advice.less_memory]
            .map(|setting| setting.map(|setting| (setting.policy, setting.capacity_bytes)))
    }

    #[test]
    fn the_policy_and_the_memory_that_bring_clearly_more_hits_are_recommended() {
        let (lru, density) = ("lru".to_owned(), "density".to_owned());
        let cases = [
            // More memory and another policy both pay. The last doubling does not.
            (
                [[0.3, 0.4, 0.5, 0.55], [0.4, 0.5, 0.6, 0.605]],
                [Some((density.clone(), 2)), Some((density.clone(), 4)), None],
            ),
            // No setting is better, and half of the memory would do.
            (
                [[0.5, 0.501, 0.501, 0.501], [0.4, 0.45, 0.5, 0.502]],
                [None, None, Some((lru.clone(), 1))],
            ),
            // The other policy is better with less memory, too.
            (
                [[0.3, 0.4, 0.45, 0.5], [0.699, 0.7, 0.702, 0.703]],
                [Some((density.clone(), 2)), None, Some((density, 1))],
            ),
            // Only memory pays.
            (
                [[0.3, 0.4, 0.5, 0.6], [0.3, 0.4, 0.5, 0.6]],
                [None, Some((lru, 8)), None],
            ),
        ];
        for ([lru, density], expected) in cases {
            let settings = settings(0.001, &[("lru", &lru), ("density", &density)]);
            let [policy, memory, less] = names(&settings);
            let memory = memory.map(|(_, bytes)| bytes);
            let [expected_policy, expected_memory, expected_less] = expected;
            assert_eq!(policy, expected_policy, "{settings:?}");
            assert_eq!(
                memory,
                expected_memory.map(|(_, bytes)| bytes),
                "{settings:?}"
            );
            assert_eq!(less, expected_less, "{settings:?}");
        }
    }

    #[test]
    fn the_least_memory_near_the_best_is_recommended_with_its_best_policy() {
        let settings = settings(
            0.001,
            &[
                ("lru", &[0.3, 0.595, 0.6]),
                ("density", &[0.5, 0.597, 0.601]),
            ],
        );
        let setting = recommended(&settings).expect("settings");
        assert_eq!(
            (setting.policy.as_str(), setting.capacity_bytes),
            ("density", 2)
        );
        assert_eq!(recommended(&[]), None);
    }

    /// Method: rows of rule, capacity, hits and writes. The present disk has 4 bytes and the rule `second-hit`.
    #[test]
    fn the_disk_with_clearly_more_hits_or_fewer_writes_is_recommended() {
        let cases = [
            // A larger disk pays. The rule of the second request writes less.
            ([0.5, 0.6, 0.7], [0.5, 0.6, 0.695], Some(("second-hit", 8))),
            // Twice the present capacity brings nothing, and half of it nearly as much.
            ([0.6, 0.6, 0.6], [0.599, 0.6, 0.6], Some(("second-hit", 2))),
            // Only `always` is near the best.
            ([0.5, 0.7, 0.705], [0.4, 0.6, 0.61], Some(("always", 4))),
            // The present disk is as good.
            ([0.5, 0.7, 0.705], [0.5, 0.7, 0.705], None),
        ];
        for (always, second_hit, expected) in cases {
            let rows = [("always", always, 10.0), ("second-hit", second_hit, 4.0)];
            let rows = rows.iter().flat_map(|(admission, hits, written)| {
                hits.iter()
                    .enumerate()
                    .map(move |(at, hit_ratio)| DiskSetting {
                        admission: (*admission).to_owned(),
                        capacity_bytes: 2 << at,
                        is_present: *admission == "second-hit" && at == 1,
                        hit_ratio: *hit_ratio,
                        hit_ratio_error: 0.001,
                        origin_bytes_per_second: 1.0,
                        disk_bytes_per_second: *written,
                        is_filling: false,
                    })
            });
            let rows: Vec<_> = rows.collect();
            let found = advise_disk(&rows).map(|it| (it.admission.as_str(), it.capacity_bytes));
            assert_eq!(found, expected, "{rows:?}");
        }
        assert_eq!(advise_disk(&[]), None);
    }

    /// Method: all disks fill, so that all of a rule have the same hits.
    #[test]
    fn a_disk_that_has_never_been_full_is_not_reduced() {
        let disk = |admission: &str, capacity_bytes, is_present, hit_ratio| DiskSetting {
            admission: admission.to_owned(),
            capacity_bytes,
            is_present,
            hit_ratio,
            hit_ratio_error: 0.001,
            origin_bytes_per_second: 1.0,
            disk_bytes_per_second: 4.0,
            is_filling: true,
        };
        let rows = [
            disk("second-hit", 2, false, 0.5),
            disk("second-hit", 4, true, 0.5),
            disk("always", 2, false, 0.7),
            disk("always", 4, false, 0.7),
        ];
        let found = advise_disk(&rows).map(|it| (it.admission.as_str(), it.capacity_bytes));
        assert_eq!(found, Some(("always", 4)));
        assert_eq!(advise_disk(&rows[..2]), None);
    }

    #[test]
    fn memory_that_has_never_been_full_is_not_reduced() {
        for is_filling in [false, true] {
            let mut settings = settings(0.001, &[("lru", &[0.5, 0.501])]);
            settings[1].is_filling = is_filling;
            assert_eq!(names(&settings)[2].is_none(), is_filling);
        }
    }

    #[test]
    fn a_difference_within_the_error_is_no_reason_for_a_change() {
        for (error, is_recommended) in [(0.005, true), (0.02, false)] {
            let settings = settings(error, &[("lru", &[0.3, 0.4]), ("gdsf", &[0.35, 0.42])]);
            let [policy, memory, _] = names(&settings);
            assert_eq!((policy.is_some(), memory), (is_recommended, None));
        }
    }

    #[test]
    fn without_a_present_setting_there_is_no_advice() {
        let mut settings = settings(0.0, &[("lru", &[0.3, 0.4])]);
        settings[1].is_present = false;
        assert_eq!(advise(&settings), None);
    }
}
