package filter

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// Answer is the result of a query for an id.
type Answer uint8

const (
	// Ask: the client has no fresh filter; send the request.
	Ask Answer = iota
	// Absent: the id does not exist, or was added less than MaxStaleness ago; skip the request.
	Absent
	// Maybe: the id may exist; send the request.
	Maybe
)

func (a Answer) String() string {
	return [...]string{"ask", "absent", "maybe"}[a]
}

// Now is the time of a machine's two clocks.
type Now struct {
	// Monotonic is the time since an arbitrary moment; it never decreases.
	Monotonic time.Duration
	// WallMS counts milliseconds since 1970; it may be stepped in either direction.
	WallMS int64
}

// Reason is the code of a refusal.
type Reason string

// The reasons.
const (
	OtherSet      Reason = "other-set"
	Replayed      Reason = "replayed"
	Falling       Reason = "falling"
	NotAsked      Reason = "not-asked"
	Unlisted      Reason = "unlisted"
	Early         Reason = "early"
	Older         Reason = "older"
	Contradiction Reason = "contradiction"
	Broken        Reason = "broken"
	TooLarge      Reason = "too-large"
	OverlayFull   Reason = "overlay-full"
)

// Refused is the error for received data that was not used. The previous data stays in use.
type Refused struct {
	Reason  Reason
	Message string
}

func (r *Refused) Error() string { return r.Message }

func refuse(reason Reason, format string, arguments ...any) error {
	return &Refused{reason, fmt.Sprintf(format, arguments...)}
}

func unlisted() error      { return refuse(Unlisted, "no manifest lists a file with this content") }
func early() error         { return refuse(Early, "the delta was received before an earlier one") }
func contradiction() error { return refuse(Contradiction, "the publisher contradicts itself") }

// StateConfig is the configuration of a State.
type StateConfig struct {
	// Set is the name of the set of ids it follows.
	Set          string
	MaxStaleness time.Duration
	// ClockError is the largest difference between this machine's wall clock and the publisher's, if DatesCount.
	ClockError time.Duration
	// DatesCount is true if the operator guarantees ClockError: then a manifest's date makes a filter fresh.
	DatesCount bool
	// SerialMin is the number below which manifests are replays.
	SerialMin uint64
	// SnapshotBytesMax is the largest snapshot that is fetched, in bytes. 0: 1 GiB.
	SnapshotBytesMax uint64
	// OverlayIDsMax is the most ids kept in addition to the snapshot. 0: 2^20.
	OverlayIDsMax int
}

// State decides when a client may rely on its filter. It does no input or output and reads no clock: the caller
// passes documents, files and times. It is not safe for concurrent use.
//
// The guarantee: for an id that was committed more than MaxStaleness ago, the answer is never Absent. It is Absent
// only before a deadline. A deadline comes from a statement of the publisher whose snapshot and ids have all
// arrived. The statement is a proof, which contains random bytes of this client's request and so was made after
// the request, or a manifest's date if the operator guarantees the clocks (docs/explanation/id-filter.md,
// "Freshness"). The scripts in vectors/filter compare it with the Rust client, step by step.
type State struct {
	config     StateConfig
	clock      clock
	holding    *holding
	newest     *Manifest
	listed     []listed
	challenges []challenge
	pending    []statement
	deadline   int64
	// True if there is a deadline.
	stated bool
	// The highest numbers of all trusted statements.
	highest highest
}

// The highest numbers. All except the serial number belong to the lineage.
type highest struct {
	serial, lineage, head, epochMin uint64
}

// A snapshot and the ids added since: each id with the number of its delta.
type holding struct {
	lineage, epoch, base, applied uint64
	sha256                        string
	filter                        *Filter
	overlay                       map[uint64]uint64
}

// The deltas that trusted manifests listed lately, so that a delta that was merged while it was fetched is
// still accepted.
type listed struct {
	lineage uint64
	entry   DeltaEntry
}

type challenge struct {
	echo string
	sent int64
}

// "All ids committed MaxStaleness before the deadline are in a snapshot of epochMin or later, together with
// the journal up to head."
type statement struct {
	lineage, epochMin, head uint64
	deadline                int64
}

const (
	// The most requests in progress.
	challengesMax = 8
	// The most statements whose ids have not all arrived.
	pendingMax = 16
	// The most listed deltas that are stored: those of the newest manifest and the same number of merged ones.
	listedMax = 2 * deltasMax
	// The largest difference between two clocks that counts as a rounding error.
	jitterMS = 50
)

// NewState returns a client without data, whose every answer is Ask.
func NewState(config StateConfig) *State {
	if config.SnapshotBytesMax == 0 {
		config.SnapshotBytesMax = 1 << 30
	}
	if config.OverlayIDsMax == 0 {
		config.OverlayIDsMax = 1 << 20
	}
	return &State{config: config, highest: highest{serial: config.SerialMin}}
}

// Answer looks up an id in any spelling that its form allows.
func (s *State) Answer(now Now, id string) Answer {
	if !s.IsFresh(now) {
		return Ask
	}
	facts := &s.holding.filter.facts
	hash := Hash(id, facts.Form, facts.Seed)
	if s.holding.filter.mayContain(hash) {
		return Maybe
	}
	if _, added := s.holding.overlay[hash]; added {
		return Maybe
	}
	return Absent
}

// IsFresh returns true while the filter is fresh, so that an answer may be Absent.
func (s *State) IsFresh(now Now) bool {
	return s.holding != nil && s.stated && s.clock.moment(now) <= s.deadline
}

// FreshFor returns the time until the filter becomes stale, if no further statement arrives.
func (s *State) FreshFor(now Now) time.Duration {
	if left := s.deadline - s.clock.moment(now); s.stated && left > 0 {
		return time.Duration(left) * time.Millisecond
	}
	return 0
}

// Filter is the snapshot in use, or nil.
func (s *State) Filter() *Filter {
	if s.holding == nil {
		return nil
	}
	return s.holding.filter
}

// OverlayIDs is the number of ids in addition to the snapshot.
func (s *State) OverlayIDs() int {
	if s.holding == nil {
		return 0
	}
	return len(s.holding.overlay)
}

// Position returns the known position in the journal, as a request's query has it. Empty if unknown.
func (s *State) Position() string {
	if s.holding == nil {
		return ""
	}
	return fmt.Sprintf("%d-%d-%d", s.holding.lineage, s.holding.epoch, s.holding.applied)
}

// Serial is the number of the newest manifest.
func (s *State) Serial() uint64 {
	if s.newest == nil {
		return s.config.SerialMin
	}
	return s.newest.Serial
}

// Observe updates the time. Every method that changes the state does so too.
func (s *State) Observe(now Now) { s.clock.observe(now) }

// Challenge records a request with these 16 random bytes in hex. It must not be sent before the given time.
func (s *State) Challenge(now Now, echo string) {
	sent := s.clock.observe(now)
	if len(s.challenges) == challengesMax {
		s.challenges = s.challenges[1:]
	}
	s.challenges = append(s.challenges, challenge{strings.ToLower(echo), sent})
}

// Manifest processes a manifest that ReadManifest has verified.
func (s *State) Manifest(now Now, manifest *Manifest) error {
	s.clock.observe(now)
	if err := s.checkSet(manifest.Set); err != nil {
		return err
	}
	if err := s.checkSerial(manifest.Serial); err != nil {
		return err
	}
	if s.newest != nil && s.newest.Serial == manifest.Serial && !same(s.newest, manifest) {
		return contradiction()
	}
	if err := s.checkRising(manifest.Lineage, manifest.EpochMin, manifest.Head); err != nil {
		return err
	}
	if s.newest != nil && s.newest.Lineage == manifest.Lineage {
		if err := rising("epoch", manifest.Snapshot.Epoch, s.newest.Snapshot.Epoch); err != nil {
			return err
		}
		if err := rising("base", manifest.Snapshot.Base, s.newest.Snapshot.Base); err != nil {
			return err
		}
	}
	s.highest = highest{manifest.Serial, manifest.Lineage, manifest.Head, manifest.EpochMin}
	s.considerDate(now, manifest)
	for _, entry := range manifest.Deltas {
		s.list(listed{manifest.Lineage, entry})
	}
	s.adopt(manifest)
	s.newest = manifest
	s.settle()
	return nil
}

// Adopts the snapshot in use for a new lineage, if the manifest lists the same file: the publisher was
// restarted. The added ids and the deadline stay. The next snapshot of the new lineage comes from a scan
// that began after the restart, so it has all ids committed before the restart.
func (s *State) adopt(manifest *Manifest) {
	held, named := s.holding, manifest.Snapshot
	if held != nil && held.lineage != manifest.Lineage && held.sha256 == named.SHA256 && held.epoch == named.Epoch {
		held.lineage, held.base, held.applied = manifest.Lineage, named.Base, named.Base
	}
}

func (s *State) checkSerial(serial uint64) error {
	if serial < s.highest.serial {
		return refuse(Replayed, "manifest %d is older than %d, which was received before", serial, s.highest.serial)
	}
	return nil
}

// Refuses a statement with smaller numbers than an earlier one of the same lineage.
func (s *State) checkRising(lineage, epochMin, head uint64) error {
	if lineage != s.highest.lineage {
		return nil
	}
	if err := rising("head", head, s.highest.head); err != nil {
		return err
	}
	return rising("epoch_min", epochMin, s.highest.epochMin)
}

func rising(what string, found, newest uint64) error {
	if found < newest {
		return refuse(Falling, "the publisher's %s fell from %d to %d within a lineage", what, newest, found)
	}
	return nil
}

func (s *State) list(delta listed) {
	for _, known := range s.listed {
		if known == delta {
			return
		}
	}
	if len(s.listed) == listedMax {
		s.listed = s.listed[1:]
	}
	s.listed = append(s.listed, delta)
}

// Proof processes a proof that ReadProof has verified.
func (s *State) Proof(now Now, proof *Proof) error {
	s.clock.observe(now)
	if err := s.checkSet(proof.Set); err != nil {
		return err
	}
	echo := strings.ToLower(proof.Echo)
	for n, asked := range s.challenges {
		if asked.echo != echo {
			continue
		}
		s.challenges = append(s.challenges[:n:n], s.challenges[n+1:]...)
		if err := s.checkSerial(proof.Serial); err != nil {
			return err
		}
		if err := s.checkRising(proof.Lineage, proof.EpochMin, proof.Head); err != nil {
			return err
		}
		s.highest = highest{proof.Serial, proof.Lineage, proof.Head, proof.EpochMin}
		if most := s.config.MaxStaleness.Milliseconds(); proof.LagMS <= uint64(most) {
			s.state(statement{proof.Lineage, proof.EpochMin, proof.Head, asked.sent + most - int64(proof.LagMS)})
		}
		s.settle()
		return nil
	}
	return refuse(NotAsked, "the proof matches no request in progress")
}

// Received is a snapshot whose bytes are hashed and opened, which needs no State.
type Received struct {
	sha256 string
	filter *Filter
	err    error
}

// Receive hashes and opens a snapshot. It reads every byte twice, and keeps a reference to the bytes, which must not change.
func Receive(file []byte) Received {
	filter, err := Open(file)
	return Received{digestOf(file), filter, err}
}

func digestOf(file []byte) string {
	digest := sha256.Sum256(file)
	return hex.EncodeToString(digest[:])
}

// Snapshot processes a snapshot that a manifest lists.
func (s *State) Snapshot(now Now, received Received) error {
	s.clock.observe(now)
	if s.newest == nil {
		return unlisted()
	}
	named, lineage := s.newest.Snapshot, s.newest.Lineage
	if most := s.config.SnapshotBytesMax; named.Bytes > most {
		return refuse(TooLarge, "a snapshot of %d bytes is larger than the %d allowed", named.Bytes, most)
	}
	if received.sha256 != named.SHA256 {
		return unlisted()
	}
	if received.err != nil {
		return refuse(Broken, "%v", received.err)
	}
	filter := received.filter
	if filter.facts.Epoch != named.Epoch {
		return contradiction()
	}
	fresh := &holding{
		lineage, named.Epoch, named.Base, named.Base, received.sha256, filter, map[uint64]uint64{},
	}
	if old := s.holding; old != nil && old.lineage == lineage {
		if old.epoch >= named.Epoch || old.base > named.Base || old.filter.facts.Seed != filter.facts.Seed {
			return refuse(Older, "the snapshot is not newer than the one in use")
		}
		// The old table has all ids from the new base up to the old position.
		if old.applied > fresh.applied {
			fresh.applied = old.applied
		}
		for id, to := range old.overlay {
			if to > named.Base {
				fresh.overlay[id] = to
			}
		}
	} else {
		// The deadline was computed for another lineage.
		s.stated = false
	}
	s.holding = fresh
	s.settle()
	return nil
}

// Delta processes a delta that a manifest lists.
func (s *State) Delta(now Now, file []byte) error {
	s.clock.observe(now)
	name := digestOf(file)
	var named *listed
	for n := range s.listed {
		if s.listed[n].entry.SHA256 == name {
			named = &s.listed[n]
			break
		}
	}
	if named == nil {
		return unlisted()
	}
	read, err := readDelta(file)
	if err != nil {
		return refuse(Broken, "%v", err)
	}
	holding, entry := s.holding, named.entry
	if holding == nil || holding.lineage != named.lineage {
		return early()
	}
	if read.lineage != named.lineage || read.from != entry.From || read.to != entry.To ||
		read.seed != holding.filter.facts.Seed {
		return contradiction()
	}
	if entry.From > holding.applied {
		return early()
	}
	if entry.To <= holding.applied {
		// The delta is a duplicate, or another delta has the same ids.
		return nil
	}
	if most := s.config.OverlayIDsMax; len(read.ids) > most-len(holding.overlay) {
		return refuse(OverlayFull, "more than %d ids were added since the snapshot; waiting for the next one", most)
	}
	for _, id := range read.ids {
		if holding.overlay[id] < entry.To {
			holding.overlay[id] = entry.To
		}
	}
	holding.applied = entry.To
	s.settle()
	return nil
}

// SnapshotRefused returns an error if the newest snapshot is needed but is larger than allowed.
func (s *State) SnapshotRefused() error {
	if s.newest == nil || !s.isWanted(s.newest) {
		return nil
	}
	if named, most := s.newest.Snapshot, s.config.SnapshotBytesMax; named.Bytes > most {
		return refuse(TooLarge, "a snapshot of %d bytes is larger than the %d allowed", named.Bytes, most)
	}
	return nil
}

func (s *State) isWanted(manifest *Manifest) bool {
	return s.holding == nil || s.holding.lineage != manifest.Lineage ||
		s.holding.epoch < manifest.Snapshot.Epoch
}

// Wants returns the files to fetch now: a snapshot or nil, and deltas in their order.
func (s *State) Wants() (*Snapshot, []DeltaEntry) {
	manifest := s.newest
	if manifest == nil {
		return nil, nil
	}
	var snapshot *Snapshot
	same := s.holding != nil && s.holding.lineage == manifest.Lineage
	fits := manifest.Snapshot.Bytes <= s.config.SnapshotBytesMax
	if s.isWanted(manifest) && fits {
		named := manifest.Snapshot
		snapshot = &named
	}
	if !same {
		return snapshot, nil
	}
	for n, delta := range manifest.Deltas {
		if delta.To > s.holding.applied {
			if delta.From > s.holding.applied {
				// The journal no longer reaches back to the client's position: a snapshot is needed.
				break
			}
			return snapshot, append([]DeltaEntry(nil), manifest.Deltas[n:]...)
		}
	}
	return snapshot, nil
}

// Adds the statement of a manifest's date, if the operator guarantees the largest error of the clocks.
func (s *State) considerDate(now Now, manifest *Manifest) {
	const far = 1 << 62
	if !s.config.DatesCount || manifest.CoversMS > far {
		return
	}
	moment := s.clock.moment(now)
	age := moment - int64(manifest.CoversMS) + s.config.ClockError.Milliseconds()
	most := s.config.MaxStaleness.Milliseconds()
	// The date is later than the clocks' error permits: the guarantee does not hold.
	if age < 0 || age > most {
		return
	}
	s.state(statement{manifest.Lineage, manifest.EpochMin, manifest.Head, moment + most - age})
}

// Stores a statement until its ids have arrived. Its deadline is reduced, because jitter can hide elapsed time.
func (s *State) state(said statement) {
	said.deadline -= 2 * jitterMS
	for n := range s.pending {
		known := &s.pending[n]
		if known.lineage == said.lineage && known.epochMin == said.epochMin && known.head == said.head {
			if known.deadline < said.deadline {
				known.deadline = said.deadline
			}
			return
		}
	}
	if len(s.pending) == pendingMax {
		// The oldest will be complete first, and the newest gives the longest deadline, so one in the middle is dropped.
		s.pending = append(s.pending[:pendingMax/2], s.pending[pendingMax/2+1:]...)
	}
	s.pending = append(s.pending, said)
}

// Applies the statements whose ids have all arrived.
func (s *State) settle() {
	if s.holding == nil {
		return
	}
	waiting := s.pending[:0]
	for _, said := range s.pending {
		if said.lineage != s.holding.lineage || said.epochMin > s.holding.epoch ||
			said.head > s.holding.applied {
			waiting = append(waiting, said)
		} else if !s.stated || said.deadline > s.deadline {
			s.stated, s.deadline = true, said.deadline
		}
	}
	s.pending = waiting
}

func (s *State) checkSet(set string) error {
	if set != s.config.Set {
		return refuse(OtherSet, "this belongs to the set %.80q", set)
	}
	return nil
}

func same(one, other *Manifest) bool {
	if len(one.Deltas) != len(other.Deltas) {
		return false
	}
	for n := range one.Deltas {
		if one.Deltas[n] != other.Deltas[n] {
			return false
		}
	}
	return one.Set == other.Set && one.Serial == other.Serial && one.Lineage == other.Lineage &&
		one.CoversMS == other.CoversMS && one.EpochMin == other.EpochMin && one.Head == other.Head && one.Snapshot == other.Snapshot
}

// One time from two clocks that may both be wrong. The time advances with the faster clock. When the clocks diverge,
// the anchor is reset, so that a step back does not hide a later sleep.
type clock struct {
	anchored        bool
	monotonic, wall int64
	anchor          int64
}

func (c *clock) observe(now Now) int64 {
	moment := c.moment(now)
	monotonic := now.Monotonic.Milliseconds()
	parted := (now.WallMS - c.wall) - (monotonic - c.monotonic)
	if !c.anchored || parted > jitterMS || parted < -jitterMS {
		*c = clock{true, monotonic, now.WallMS, moment}
	}
	return moment
}

func (c *clock) moment(now Now) int64 {
	if !c.anchored {
		return now.WallMS
	}
	passed := now.Monotonic.Milliseconds() - c.monotonic
	if wall := now.WallMS - c.wall; wall > passed {
		passed = wall
	}
	return c.anchor + passed
}
