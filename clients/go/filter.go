package filter

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"
)

// A Filter is an id filter in memory. Open checks every number in the file against the length of the file, so a
// hostile file cannot cause large allocations (docs/reference/filter-format.md). A Filter is safe for concurrent use.
type Filter struct {
	facts   Facts
	payload []byte
	// Exactly one of the next two fields is set: the number of blocks of an updatable filter, or the shards of a static
	// filter.
	blocks uint32
	shards []shard
}

// Facts are the fields of a filter's header.
type Facts struct {
	// Updatable is true for a blocked Bloom filter, false for a static filter (binary fuse).
	Updatable bool
	// Form is the kind of the ids: text, UUIDs or integers.
	Form Form
	// Epoch is higher in a later build of the set.
	Epoch uint64
	// Built is the time of the build, zero if unknown.
	Built time.Time
	// IDs is the number of ids in the filter.
	IDs uint64
	// Capacity is the number of ids for which the filter was built.
	Capacity uint64
	// Seed is the seed of the ids' hashes.
	Seed uint64
	// Rate is the configured false-positive rate.
	Rate float64
	// Bytes is the size of the file.
	Bytes int
}

// ErrBroken is wrapped by every error about an invalid file of a filter or delta.
var ErrBroken = errors.New("invalid file")

func invalidFile(format string, arguments ...any) error {
	return fmt.Errorf(format+" (%w)", append(arguments, ErrBroken)...)
}

const (
	headerBytes = 128
	// The size of a shard's entry in the directory, the table at the start of a static filter's payload.
	shardBytes = 32
	// The size of a block of an updatable filter.
	bloomBytes = 32
	// The maximum number of slots of a shard, and the maximum of log2 of the slots of a segment.
	slotsMax       = 1 << 28
	segmentLog2Max = 16
	// The padding after the slots of a shard, so that eight bytes can be read at the start of any slot.
	paddingBytes = 7
	filterMagic  = "\x89EWF\r\n\x1a\n"
)

// A part of a static filter: the slots of all ids whose hashes are in one range.
type shard struct {
	// The slots, packed without gaps, and the padding.
	area []byte
	// The seed that is mixed with the hash of an id to find its slots.
	seed uint64
	// The number of slots that can be the first of an id's four slots; 0 for a shard without ids.
	starts uint32
	// The slots from this number on have one bit more than the earlier slots.
	wideFrom uint32
	// The number of slots of a segment. The four slots of an id are in consecutive segments.
	segment uint32
	// The number of bits of a slot before wideFrom.
	bits uint8
}

// Open parses a filter. It keeps a reference to the bytes, which must not change.
func Open(file []byte) (*Filter, error) {
	if len(file) < 8 || string(file[:8]) != filterMagic {
		return nil, invalidFile("not an edgeward id filter")
	}
	if len(file) < headerBytes {
		return nil, invalidFile("the filter is truncated within its header, after %d bytes", len(file))
	}
	if version := uint16(file[8]) | uint16(file[9])<<8; version != 1 {
		return nil, invalidFile("the filter has format version %d, and this package reads version 1", version)
	}
	if u64(file, 120) != xxh3(file[:120], 0) {
		return nil, invalidFile("the filter's header is corrupt: its checksum does not match")
	}
	kind, form := file[10], Form(file[11])
	reserved := byte(0)
	for _, zero := range file[80:120] {
		reserved |= zero
	}
	if kind != 1 && kind != 2 || form >= forms || reserved != 0 {
		return nil, invalidFile("the filter's header has a value that format version 1 does not define")
	}
	payload := file[headerBytes:]
	if stated := u64(file, 64); stated != uint64(len(payload)) {
		return nil, invalidFile("the filter has %d bytes after its header, and the header states %d", len(payload), stated)
	}
	if u64(file, 72) != xxh3(payload, 0) {
		return nil, invalidFile("the filter's payload is corrupt: its checksum does not match")
	}
	rate := math.Float64frombits(u64(file, 56))
	if !(rate > 0 && rate < 1) {
		return nil, invalidFile("the filter's header is invalid: the false-positive rate is not between 0 and 1")
	}
	filter := &Filter{
		payload: payload,
		facts: Facts{
			Updatable: kind == 2,
			Form:      form,
			Epoch:     u64(file, 16),
			IDs:       u64(file, 32),
			Capacity:  u64(file, 40),
			Seed:      u64(file, 48),
			Rate:      rate,
			Bytes:     len(file),
		},
	}
	if built := u64(file, 24); built != 0 && built <= math.MaxInt64 {
		filter.facts.Built = time.UnixMilli(int64(built))
	}
	parts := u32(file, 12)
	if kind == 2 {
		if parts == 0 || uint64(len(payload)) != uint64(parts)*bloomBytes {
			return nil, invalidFile("the filter's header is invalid: the number of blocks does not match the length of the payload")
		}
		filter.blocks = parts
		return filter, nil
	}
	var err error
	filter.shards, err = readShards(payload, parts)
	return filter, err
}

func readShards(payload []byte, count uint32) ([]shard, error) {
	next := uint64(count) * shardBytes
	if count == 0 || next > uint64(len(payload)) {
		return nil, invalidFile("the filter's header is invalid: the payload is too short for the number of shards")
	}
	// The directory is complete, so the number of shards is bounded by the length of the file.
	shards := make([]shard, 0, count)
	for number := 0; number < int(count); number++ {
		entry := payload[number*shardBytes : (number+1)*shardBytes]
		segments, wideFrom := u32(entry, 16), u32(entry, 20)
		log2, width := entry[24], entry[25]
		// The shards must have no gaps between them, so that filters with the same content have the same bytes.
		valid := u64(entry, 0) == next && u64(entry, 24)>>16 == 0
		size := uint64(0)
		if segments == 0 {
			valid = valid && wideFrom == 0 && log2 == 0 && width == 1
		} else if valid = valid && 1 <= width && width <= 32 && log2 <= segmentLog2Max; valid {
			slots := (uint64(segments) + 3) << log2
			valid = slots <= slotsMax && uint64(wideFrom) <= slots
			size = (slots*uint64(width)+slots-uint64(wideFrom)+7)/8 + paddingBytes
		}
		if !valid || next+size > uint64(len(payload)) {
			return nil, invalidFile("shard %d of the filter has an invalid size or offset", number)
		}
		shards = append(shards, shard{
			area:     payload[next : next+size],
			seed:     u64(entry, 8),
			starts:   segments << log2,
			wideFrom: wideFrom,
			segment:  1 << log2,
			bits:     width,
		})
		next += size
	}
	if next != uint64(len(payload)) {
		return nil, invalidFile("the filter's payload is invalid: it is longer than its shards")
	}
	return shards, nil
}

// Facts returns the fields of the header.
func (f *Filter) Facts() Facts { return f.facts }

// MayContain returns false only if the id is certainly not in the filter. It returns true for text that is not an id
// which every origin reads alike, such as " 7" or "k2;v=1".
func (f *Filter) MayContain(id string) bool {
	hash, ok := hashQuery(id, f.facts.Form, f.facts.Seed)
	return !ok || f.mayContain(hash)
}

func (f *Filter) mayContain(hash uint64) bool {
	if f.shards == nil {
		return f.mayContainInBlocks(hash)
	}
	number, _ := bits.Mul64(hash, uint64(len(f.shards)))
	return f.shards[number].mayContain(hash)
}

func (f *Filter) mayContainInBlocks(hash uint64) bool {
	offset := int((hash>>32)*uint64(f.blocks)>>32) * bloomBytes
	block := f.payload[offset : offset+bloomBytes]
	missing := uint32(0)
	for lane, salt := range salts {
		missing |= 1 << (uint32(hash) * salt >> 27) &^ u32(block, 4*lane)
	}
	return missing == 0
}

// The factors that select the bit of an id in each of the eight 32-bit words (lanes) of a block.
var salts = [8]uint32{
	0x47b6137b, 0x44974d91, 0x8824ad5b, 0xa2b7289d, 0x705495c7, 0x2df1424b, 0x9efc4947, 0x5c6bfb31,
}

func (s *shard) mayContain(hash uint64) bool {
	if s.starts == 0 {
		return false
	}
	m := mix(hash, s.seed)
	w := m * 0x9e3779b97f4a7c15
	w ^= w >> 32
	start, mask := uint32((m>>32)*uint64(s.starts)>>32), s.segment-1
	width := s.bits
	if start >= s.wideFrom {
		width++
	}
	sum := w >> (64 - width)
	sum ^= s.slot(start)
	sum ^= s.slot((start + s.segment) ^ uint32(m)&mask)
	sum ^= s.slot((start + 2*s.segment) ^ uint32(m>>16)&mask)
	sum ^= s.slot((start + 3*s.segment) ^ uint32(w)&mask)
	return sum<<(64-width) == 0
}

func (s *shard) slot(slot uint32) uint64 {
	bit := uint64(slot) * uint64(s.bits)
	if slot > s.wideFrom {
		bit += uint64(slot - s.wideFrom)
	}
	return u64(s.area, int(bit/8)) >> (bit % 8)
}

// Mixes a hash with a seed: the finaliser of MurmurHash3 (Austin Appleby, public domain).
func mix(hash, seed uint64) uint64 {
	x := hash ^ seed
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
