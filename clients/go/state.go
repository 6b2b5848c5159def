package filter

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// Answer is the result of a lookup of an id.
type Answer uint8

const (
	// Ask: the client has no fresh filter, or the text is not an id; send the request.
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

// The reasons. The scripts in vectors/filter use these codes for the clients in all languages.
const (
	OtherSet      Reason = "other-set"     // The manifest or proof is for another set.
	Replayed      Reason = "replayed"      // A newer manifest or proof was received before.
	Falling       Reason = "falling"       // A number of the publisher decreased within a lineage.
	NotAsked      Reason = "not-asked"     // No request in progress had the challenge of this proof.
	Unlisted      Reason = "unlisted"      // No manifest lists the file.
	Early         Reason = "early"         // The client lacks ids before the delta.
	Older         Reason = "older"         // The snapshot is not newer than the one in use.
	Contradiction Reason = "contradiction" // Two statements of the publisher cannot both be true.
	Broken        Reason = "broken"        // The file is invalid, although a manifest lists it.
	TooLarge      Reason = "too-large"     // The snapshot is larger than SnapshotBytesMax.
	OverlayFull   Reason = "overlay-full"  // The delta has more ids than OverlayIDsMax leaves space for.
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

func unlisted() error { return refuse(Unlisted, "no manifest lists a file with this SHA-256") }
func early() error    { return refuse(Early, "the delta was received before an earlier one") }
func contradiction() error {
	return refuse(Contradiction, "the content differs from an earlier statement of the publisher")
}

// StateConfig is the configuration of a State.
type StateConfig struct {
	// Set is the name of the set that the client follows.
	Set string
	// MaxStaleness: an id that was committed longer ago than this never gets Absent.
	MaxStaleness time.Duration
	// ClockError is the largest difference between this machine's wall clock and the publisher's, if DatesCount.
	ClockError time.Duration
	// DatesCount is true if the operator guarantees ClockError: then a manifest's date makes a filter fresh.
	DatesCount bool
	// SerialMin is the smallest accepted serial number; manifests and proofs with a smaller number are replays.
	SerialMin uint64
	// SnapshotBytesMax is the largest snapshot that is fetched, in bytes. 0: 1 GiB.
	SnapshotBytesMax uint64
	// OverlayIDsMax is the largest number of ids from deltas that are stored in addition to the snapshot. 0: 2^20.
	OverlayIDsMax int
}

// State decides when a client may rely on its filter. A State does no I/O and reads no clock: the caller passes
// documents, files and times. A State is not safe for concurrent use.
//
// A State never answers Absent for an id that was committed more than MaxStaleness ago. It answers Absent only before a
// deadline. A deadline comes from a statement of the publisher, after the client has received the snapshot and all ids
// to which the statement refers. A statement is a proof, or the date of a manifest if the operator guarantees the
// clocks. A proof contains random bytes of the client's request, so the publisher made it after the request
// (docs/explanation/id-filter.md, "Freshness"). The scripts in vectors/filter compare State with the Rust client, step
// by step.
type State struct {
	config       StateConfig
	clock        clock
	current      *currentFilter
	newest       *Manifest
	listedDeltas []listedDelta
	challenges   []challenge
	pending      []statement
	// The time on clock, in ms, after which the filter is stale.
	deadline int64
	// True if deadline is set.
	hasDeadline bool
	// The numbers of the newest trusted statement; smaller numbers are refused.
	highest highest
}

// The numbers of the newest trusted statement. head and epochMin are compared only with those of the same lineage.
type highest struct {
	serial, lineage, head, epochMin uint64
}

// The snapshot in use. The publisher numbers new ids in a journal. The snapshot has all ids up to the journal number
// base. overlay has the hashes of the ids after base, each with the last journal number of its delta. Snapshot and
// overlay together have all ids up to applied. After a restart of the publisher, overlay may also have ids with numbers
// of the previous lineage: see adopt.
type currentFilter struct {
	lineage, epoch, base, applied uint64
	sha256                        string
	filter                        *Filter
	overlay                       map[uint64]uint64
}

// A delta that a recent manifest lists. It is still accepted if a later manifest no longer lists it: the publisher may
// merge a delta into a larger one while the client downloads the delta.
type listedDelta struct {
	lineage uint64
	entry   DeltaEntry
}

// A request whose proof has not arrived: its random bytes in hex, and the time of the request in ms.
type challenge struct {
	echo string
	sent int64
}

// A publisher's statement about all ids that were committed before the time deadline - MaxStaleness. Each of these ids
// is in the journal up to head, or in every snapshot whose epoch is epochMin or higher. A client that has such a
// snapshot and the journal up to head is therefore fresh until deadline.
type statement struct {
	lineage, epochMin, head uint64
	deadline                int64
}

const (
	// The largest number of stored challenges for which no proof has arrived.
	challengesMax = 8
	// The largest number of stored statements that refer to ids that the client does not have yet.
	pendingMax = 16
	// The largest number of remembered deltas: those of the newest manifest, and equally many of earlier manifests.
	listedMax = 2 * deltasMax
	// The largest divergence of the monotonic and the wall clock that is tolerated, in ms.
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

// Answer looks up an id in any spelling that the form of the set allows. The form is the kind of the ids: text, UUIDs
// or integers. Text that is not an id which every origin reads alike gets Ask.
func (s *State) Answer(now Now, id string) Answer {
	if !s.IsFresh(now) {
		return Ask
	}
	facts := &s.current.filter.facts
	hash, ok := hashQuery(id, facts.Form, facts.Seed)
	if !ok {
		return Ask
	}
	if s.current.filter.mayContain(hash) {
		return Maybe
	}
	if _, added := s.current.overlay[hash]; added {
		return Maybe
	}
	return Absent
}

// IsFresh returns true while the filter is fresh, so that an answer may be Absent.
func (s *State) IsFresh(now Now) bool {
	return s.current != nil && s.hasDeadline && s.clock.moment(now) <= s.deadline
}

// FreshFor returns the time until the filter becomes stale, if no further statement arrives.
func (s *State) FreshFor(now Now) time.Duration {
	if left := s.deadline - s.clock.moment(now); s.hasDeadline && left > 0 {
		return time.Duration(left) * time.Millisecond
	}
	return 0
}

// Filter returns the snapshot in use, or nil.
func (s *State) Filter() *Filter {
	if s.current == nil {
		return nil
	}
	return s.current.filter
}

// OverlayIDs returns the number of ids that deltas added since the snapshot.
func (s *State) OverlayIDs() int {
	if s.current == nil {
		return 0
	}
	return len(s.current.overlay)
}

// Position returns the client's position in the journal, as requests state it in their parameter "have". The position
// is empty without a snapshot.
func (s *State) Position() string {
	if s.current == nil {
		return ""
	}
	return fmt.Sprintf("%d-%d-%d", s.current.lineage, s.current.epoch, s.current.applied)
}

// Serial returns the serial number of the newest manifest.
func (s *State) Serial() uint64 {
	if s.newest == nil {
		return s.config.SerialMin
	}
	return s.newest.Serial
}

// Observe updates the time. All methods that change the state also update the time.
func (s *State) Observe(now Now) { s.clock.observe(now) }

// Challenge records a challenge: 16 random bytes in hex. The request with the challenge must not be sent before this
// call.
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
	if err := s.checkNumbers(manifest.Lineage, manifest.EpochMin, manifest.Head); err != nil {
		return err
	}
	if s.newest != nil && s.newest.Lineage == manifest.Lineage {
		if err := checkNotBelow("epoch", manifest.Snapshot.Epoch, s.newest.Snapshot.Epoch); err != nil {
			return err
		}
		if err := checkNotBelow("base", manifest.Snapshot.Base, s.newest.Snapshot.Base); err != nil {
			return err
		}
	}
	s.highest = highest{manifest.Serial, manifest.Lineage, manifest.Head, manifest.EpochMin}
	s.considerDate(now, manifest)
	for _, entry := range manifest.Deltas {
		s.remember(listedDelta{manifest.Lineage, entry})
	}
	s.adopt(manifest)
	s.newest = manifest
	s.applyStatements()
	return nil
}

// Uses the current snapshot also for a new lineage, if the manifest lists the same file after a restart of the
// publisher. The added ids and the deadline stay valid, because the client still has the same ids. The journal of the
// new lineage may lack the added ids, but the next snapshot has them: its scan began after the restart, so it contains
// all ids that were committed before the restart. The added ids keep their numbers of the old lineage, and the function
// Snapshot compares these numbers with a base of the new lineage. This is safe: the next snapshot has each id that
// Snapshot drops, and an id that Snapshot keeps is merely stored twice.
func (s *State) adopt(manifest *Manifest) {
	current, named := s.current, manifest.Snapshot
	if current != nil && current.lineage != manifest.Lineage && current.sha256 == named.SHA256 && current.epoch == named.Epoch {
		current.lineage, current.base, current.applied = manifest.Lineage, named.Base, named.Base
	}
}

// Refuses a manifest, or a proof, with a smaller serial number than an earlier one. A proof has the serial number of
// the manifest that was the newest when the proof was made, so the error names a manifest in both cases.
func (s *State) checkSerial(serial uint64) error {
	if serial < s.highest.serial {
		return refuse(Replayed, "manifest %d is older than %d, which was received before", serial, s.highest.serial)
	}
	return nil
}

// Refuses a manifest or proof with smaller numbers than an earlier one of the same lineage.
func (s *State) checkNumbers(lineage, epochMin, head uint64) error {
	if lineage != s.highest.lineage {
		return nil
	}
	if err := checkNotBelow("head", head, s.highest.head); err != nil {
		return err
	}
	return checkNotBelow("epoch_min", epochMin, s.highest.epochMin)
}

func checkNotBelow(what string, found, newest uint64) error {
	if found < newest {
		return refuse(Falling, "the publisher's %s decreased from %d to %d within a lineage", what, newest, found)
	}
	return nil
}

func (s *State) remember(delta listedDelta) {
	for _, existing := range s.listedDeltas {
		if existing == delta {
			return
		}
	}
	if len(s.listedDeltas) == listedMax {
		s.listedDeltas = s.listedDeltas[1:]
	}
	s.listedDeltas = append(s.listedDeltas, delta)
}

// Proof processes a proof that ReadProof has verified.
func (s *State) Proof(now Now, proof *Proof) error {
	s.clock.observe(now)
	if err := s.checkSet(proof.Set); err != nil {
		return err
	}
	echo := strings.ToLower(proof.Echo)
	for n, open := range s.challenges {
		if open.echo != echo {
			continue
		}
		s.challenges = append(s.challenges[:n:n], s.challenges[n+1:]...)
		if err := s.checkSerial(proof.Serial); err != nil {
			return err
		}
		if err := s.checkNumbers(proof.Lineage, proof.EpochMin, proof.Head); err != nil {
			return err
		}
		s.highest = highest{proof.Serial, proof.Lineage, proof.Head, proof.EpochMin}
		// The publisher states that it has all ids that were committed up to LagMS before the proof.
		if most := s.config.MaxStaleness.Milliseconds(); proof.LagMS <= uint64(most) {
			s.addStatement(statement{proof.Lineage, proof.EpochMin, proof.Head, open.sent + most - int64(proof.LagMS)})
		}
		s.applyStatements()
		return nil
	}
	return refuse(NotAsked, "the proof matches no request in progress")
}

// Received is a downloaded snapshot: its SHA-256, and either the opened filter or an error.
type Received struct {
	sha256 string
	filter *Filter
	err    error
}

// Receive hashes and opens the file of a snapshot. It keeps a reference to the bytes, which must not change.
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
	replacement := &currentFilter{
		lineage, named.Epoch, named.Base, named.Base, received.sha256, filter, map[uint64]uint64{},
	}
	if old := s.current; old != nil && old.lineage == lineage {
		if old.epoch >= named.Epoch || old.base > named.Base || old.filter.facts.Seed != filter.facts.Seed {
			return refuse(Older, "the snapshot is not newer than the one in use")
		}
		// The old overlay has all ids from the new base up to the old position.
		if old.applied > replacement.applied {
			replacement.applied = old.applied
		}
		for id, to := range old.overlay {
			if to > named.Base {
				replacement.overlay[id] = to
			}
		}
	} else {
		// The deadline is from the other lineage, so it does not apply to the new snapshot.
		s.hasDeadline = false
	}
	s.current = replacement
	s.applyStatements()
	return nil
}

// Delta processes a delta that a manifest lists.
func (s *State) Delta(now Now, file []byte) error {
	s.clock.observe(now)
	name := digestOf(file)
	var named *listedDelta
	for n := range s.listedDeltas {
		if s.listedDeltas[n].entry.SHA256 == name {
			named = &s.listedDeltas[n]
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
	current, entry := s.current, named.entry
	if current == nil || current.lineage != named.lineage {
		return early()
	}
	if read.lineage != named.lineage || read.from != entry.From || read.to != entry.To ||
		read.seed != current.filter.facts.Seed {
		return contradiction()
	}
	if entry.From > current.applied {
		return early()
	}
	if entry.To <= current.applied {
		// All ids of the delta were applied before.
		return nil
	}
	if most := s.config.OverlayIDsMax; len(read.ids) > most-len(current.overlay) {
		return refuse(OverlayFull, "more than %d ids were added since the snapshot; waiting for the next snapshot", most)
	}
	for _, id := range read.ids {
		if current.overlay[id] < entry.To {
			current.overlay[id] = entry.To
		}
	}
	current.applied = entry.To
	s.applyStatements()
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
	return s.current == nil || s.current.lineage != manifest.Lineage ||
		s.current.epoch < manifest.Snapshot.Epoch
}

// Wants returns the files that the client should fetch now: a snapshot or nil, and deltas in their order.
func (s *State) Wants() (*Snapshot, []DeltaEntry) {
	manifest := s.newest
	if manifest == nil {
		return nil, nil
	}
	var snapshot *Snapshot
	sameLineage := s.current != nil && s.current.lineage == manifest.Lineage
	fits := manifest.Snapshot.Bytes <= s.config.SnapshotBytesMax
	if s.isWanted(manifest) && fits {
		named := manifest.Snapshot
		snapshot = &named
	}
	if !sameLineage {
		return snapshot, nil
	}
	for n, delta := range manifest.Deltas {
		if delta.To > s.current.applied {
			if delta.From > s.current.applied {
				// The first delta that the client needs is no longer listed, so the client needs a snapshot.
				break
			}
			return snapshot, append([]DeltaEntry(nil), manifest.Deltas[n:]...)
		}
	}
	return snapshot, nil
}

// Adds the statement of a manifest's date (CoversMS: all ids committed before it are published), if the operator
// guarantees the largest error of the clocks.
func (s *State) considerDate(now Now, manifest *Manifest) {
	const dateMax = 1 << 62
	if !s.config.DatesCount || manifest.CoversMS > dateMax {
		return
	}
	moment := s.clock.moment(now)
	age := moment - int64(manifest.CoversMS) + s.config.ClockError.Milliseconds()
	most := s.config.MaxStaleness.Milliseconds()
	// A negative age means that the clocks differ by more than ClockError, so the guarantee does not hold.
	if age < 0 || age > most {
		return
	}
	s.addStatement(statement{manifest.Lineage, manifest.EpochMin, manifest.Head, moment + most - age})
}

// Stores a statement until the client has all ids to which it refers. Reduces the deadline by 2 * jitterMS, the largest
// delay of the combined clock: the type clock tolerates a divergence of jitterMS in both directions.
func (s *State) addStatement(added statement) {
	added.deadline -= 2 * jitterMS
	for n := range s.pending {
		existing := &s.pending[n]
		if existing.lineage == added.lineage && existing.epochMin == added.epochMin && existing.head == added.head {
			if existing.deadline < added.deadline {
				existing.deadline = added.deadline
			}
			return
		}
	}
	if len(s.pending) == pendingMax {
		// The ids of the oldest statement arrive first, and the newest statement gives the latest deadline. Both are
		// kept, and a statement in the middle is dropped.
		s.pending = append(s.pending[:pendingMax/2], s.pending[pendingMax/2+1:]...)
	}
	s.pending = append(s.pending, added)
}

// Sets the deadline to the latest of the statements for which the client has the snapshot and all ids, and removes
// these statements.
func (s *State) applyStatements() {
	if s.current == nil {
		return
	}
	waiting := s.pending[:0]
	for _, candidate := range s.pending {
		if candidate.lineage != s.current.lineage || candidate.epochMin > s.current.epoch ||
			candidate.head > s.current.applied {
			waiting = append(waiting, candidate)
		} else if !s.hasDeadline || candidate.deadline > s.deadline {
			s.hasDeadline, s.deadline = true, candidate.deadline
		}
	}
	s.pending = waiting
}

func (s *State) checkSet(set string) error {
	if set != s.config.Set {
		return refuse(OtherSet, "this manifest or proof is for the set %.80q", set)
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

// Combines a monotonic clock, which may stop during a sleep, and a wall clock, which may be stepped. The combined time
// advances with the faster of the two. When they diverge, the anchor is set to the current times, so that a step back
// of the wall clock does not hide a later sleep.
type clock struct {
	// False before the first observation.
	anchored bool
	// The times of both clocks when the anchor was set, in ms.
	monotonic, wall int64
	// The combined time when the anchor was set, in ms.
	anchor int64
}

func (c *clock) observe(now Now) int64 {
	moment := c.moment(now)
	monotonic := now.Monotonic.Milliseconds()
	divergence := (now.WallMS - c.wall) - (monotonic - c.monotonic)
	if !c.anchored || divergence > jitterMS || divergence < -jitterMS {
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
