package filter

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Snapshot is the entry of a snapshot in a manifest. Epoch is the sequence number of the snapshot. The snapshot has all
// ids up to journal number Base. Bytes is the size of its file.
type Snapshot struct {
	Epoch, Base, Bytes uint64
	SHA256             string
}

// DeltaEntry is the entry of a delta in a manifest. The delta covers the journal numbers from From + 1 to To. Bytes is
// the size of its file.
type DeltaEntry struct {
	From, To, Bytes uint64
	SHA256          string
}

// Manifest lists the snapshot and the deltas that together contain every id up to journal number Head.
//
// Set is the name of the set of ids. Serial increases with each manifest. Lineage identifies the publisher's journal.
// CoversMS is a time in milliseconds since 1970. A snapshot of epoch EpochMin or later, together with the journal up to
// Head, has all ids that were committed before this time. CoversMS is 0 if the publisher does not know such a time.
type Manifest struct {
	Set                                       string
	Serial, Lineage, CoversMS, EpochMin, Head uint64
	Snapshot                                  Snapshot
	Deltas                                    []DeltaEntry
}

// Proof is a publisher's answer to one client's challenge. It states that a snapshot of epoch EpochMin or later,
// together with the journal up to Head, has all ids that were committed up to LagMS milliseconds ago. Serial is the
// number of the publisher's newest manifest. Echo repeats the challenge in hex.
type Proof struct {
	Set                                    string
	Serial, Lineage, EpochMin, Head, LagMS uint64
	Echo                                   string
}

// Keys are the trusted public keys, by the first 8 bytes of their SHA-256 in hex. Without keys, a client trusts every
// server that answers.
type Keys map[string]ed25519.PublicKey

// ParseKeys reads public keys of 64 hex digits each.
func ParseKeys(texts ...string) (Keys, error) {
	keys := Keys{}
	for _, text := range texts {
		key, err := hex.DecodeString(text)
		if err != nil || len(key) != ed25519.PublicKeySize {
			return nil, errors.New("a public key has 64 hex digits")
		}
		digest := sha256.Sum256(key)
		keys[hex.EncodeToString(digest[:8])] = key
	}
	return keys, nil
}

// ErrUnbelievable is wrapped by every error about a manifest or proof that is not trusted or is invalid.
var ErrUnbelievable = errors.New("not trusted")

func untrusted(format string, arguments ...any) error {
	return fmt.Errorf(format+" (%w)", append(arguments, ErrUnbelievable)...)
}

const (
	lineBytesMax = 64 << 10
	deltasMax    = 128
)

// ReadManifest verifies a manifest's line and reads it.
func ReadManifest(line []byte, keys Keys) (*Manifest, error) {
	text, err := verifyLine(line, keys, "edgeward filter manifest 1")
	if err != nil {
		return nil, err
	}
	manifest, snapshot, deltas := &Manifest{}, json.RawMessage{}, []json.RawMessage{}
	if err = checkFormat(text); err != nil {
		return nil, err
	}
	var format uint64
	err = parseObject(text, map[string]any{
		"format": &format, "set": &manifest.Set, "serial": &manifest.Serial, "lineage": &manifest.Lineage,
		"covers_ms": &manifest.CoversMS, "epoch_min": &manifest.EpochMin, "head": &manifest.Head, "snapshot": &snapshot, "deltas": &deltas,
	})
	if err != nil {
		return nil, err
	}
	entry := &manifest.Snapshot
	err = parseObject(snapshot, map[string]any{
		"epoch": &entry.Epoch, "base": &entry.Base, "bytes": &entry.Bytes, "sha256": (*digest)(&entry.SHA256),
	})
	if err != nil {
		return nil, err
	}
	if len(deltas) > deltasMax {
		return nil, untrusted("the manifest lists %d deltas, more than %d", len(deltas), deltasMax)
	}
	for _, text := range deltas {
		var delta DeltaEntry
		err = parseObject(text, map[string]any{
			"from": &delta.From, "to": &delta.To, "bytes": &delta.Bytes, "sha256": (*digest)(&delta.SHA256),
		})
		if err != nil {
			return nil, err
		}
		manifest.Deltas = append(manifest.Deltas, delta)
	}
	return manifest, manifest.check()
}

// Refuses a manifest if its snapshot and deltas do not cover the journal up to the head, or if its snapshot is older
// than EpochMin.
func (m *Manifest) check() error {
	first := m.Head
	if len(m.Deltas) > 0 {
		first = m.Deltas[0].From
	}
	end := first
	for _, delta := range m.Deltas {
		if delta.From >= delta.To || delta.From != end {
			return untrusted("the manifest's deltas leave a gap at journal number %d", delta.From)
		}
		end = delta.To
	}
	if end != m.Head || first > m.Snapshot.Base || m.Snapshot.Base > m.Head {
		return untrusted("the manifest's deltas leave a gap at journal number %d", first)
	}
	if m.EpochMin > m.Snapshot.Epoch {
		return untrusted("the manifest requires snapshot %d, and its newest is %d", m.EpochMin, m.Snapshot.Epoch)
	}
	return nil
}

// ReadProof verifies a proof's line and reads it.
func ReadProof(line []byte, keys Keys) (*Proof, error) {
	text, err := verifyLine(line, keys, "edgeward filter proof 1")
	if err != nil {
		return nil, err
	}
	if err = checkFormat(text); err != nil {
		return nil, err
	}
	proof, format := &Proof{}, uint64(0)
	return proof, parseObject(text, map[string]any{
		"format": &format, "set": &proof.Set, "serial": &proof.Serial, "lineage": &proof.Lineage,
		"epoch_min": &proof.EpochMin, "head": &proof.Head, "lag_ms": &proof.LagMS, "echo": &proof.Echo,
	})
}

// Refuses a document whose format version is not 2. A document without the field format has version 1. Documents of
// version 1 have no epoch_min, so a client could not know for which snapshots their statements hold.
func checkFormat(text []byte) error {
	stated := struct{ Format json.RawMessage }{json.RawMessage("1")}
	if err := json.Unmarshal(text, &stated); err != nil {
		return untrusted("the signed document cannot be read: %v", err)
	}
	if string(stated.Format) != "2" {
		return untrusted("the document has format version %.20s, and this package reads version 2", stated.Format)
	}
	return nil
}

// Verifies the signature of a line and returns the JSON document in the line. The signature covers kind and the
// document, so that a proof cannot pass for a manifest.
func verifyLine(line []byte, keys Keys, kind string) ([]byte, error) {
	if len(line) > lineBytesMax {
		return nil, untrusted("a signed line of %d bytes is longer than %d", len(line), lineBytesMax)
	}
	if !utf8.Valid(line) {
		return nil, untrusted("not a signed line")
	}
	words := strings.SplitN(strings.TrimRight(string(line), "\r\n"), " ", 4)
	switch {
	case words[0] == "unsigned" && len(words) > 1:
		if len(keys) > 0 {
			return nil, untrusted("the line is not signed")
		}
		return []byte(strings.Join(words[1:], " ")), nil
	case words[0] == "ed25519" && len(words) == 4:
		text := []byte(words[3])
		if len(keys) == 0 {
			return text, nil
		}
		key, known := keys[words[1]]
		if !known {
			return nil, untrusted("the line is signed with the unknown key %.16s", words[1])
		}
		signature, err := hex.DecodeString(words[2])
		message := bytes.Join([][]byte{[]byte(kind), text}, []byte("\n"))
		if err != nil || len(signature) != ed25519.SignatureSize || !ed25519.Verify(key, message, signature) {
			return nil, untrusted("the signature is wrong")
		}
		return text, nil
	}
	return nil, untrusted("not a signed line")
}

// The SHA-256 of a file in lower-case hex.
type digest string

// Parses a JSON object into the given fields. Returns an error unless the object has exactly these fields.
func parseObject(text []byte, into map[string]any) error {
	var found map[string]json.RawMessage
	if err := json.Unmarshal(text, &found); err != nil {
		return untrusted("the signed document cannot be read: %v", err)
	}
	for name, value := range found {
		target, known := into[name]
		if !known {
			return untrusted("the signed document has a field %.40q that format version 2 does not define", name)
		}
		if err := parseField(value, target); err != nil {
			return untrusted("%s has an invalid value: %v", name, err)
		}
	}
	for name := range into {
		if _, present := found[name]; !present {
			return untrusted("the signed document lacks %s", name)
		}
	}
	return nil
}

// Parses one field. Unlike encoding/json, it returns an error for null.
func parseField(value json.RawMessage, target any) error {
	var err error
	switch target := target.(type) {
	case *uint64:
		*target, err = strconv.ParseUint(string(value), 10, 64)
		return err
	case *digest:
		err = json.Unmarshal(value, (*string)(target))
		bytes, wrong := hex.DecodeString(string(*target))
		if err == nil && (wrong != nil || len(bytes) != sha256.Size) {
			return errors.New("not a SHA-256 in hex")
		}
		*target = digest(strings.ToLower(string(*target)))
		return err
	}
	if string(value) == "null" {
		return errors.New("null is not allowed")
	}
	return json.Unmarshal(value, target)
}
