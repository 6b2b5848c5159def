package filter

import "strings"

// Form is the kind of the ids of a set: text, UUIDs or integers. It determines the canonical spelling of an id.
type Form uint8

// The forms, in the order of their numbers in the file format.
const (
	// Text or bytes: each spelling is a separate id.
	Text Form = iota
	// UUID in any of its usual spellings.
	UUID
	// Integer of up to 128 bits, in decimal.
	Integer

	// The number of forms.
	forms
)

func (f Form) String() string {
	switch f {
	case Text:
		return "text"
	case UUID:
		return "uuid"
	case Integer:
		return "integer"
	}
	return "an unknown form"
}

// Hash returns the hash of an id that filters and deltas use: XXH3 of the canonical spelling. Text that
// is not an id of the form is hashed unchanged.
func Hash(id string, form Form, seed uint64) uint64 {
	hash, _ := hashQuery(id, form, seed)
	return hash
}

// Returns the hash of an id, and true if every origin reads the text as this id. Only then may the answer be Absent: see
// "Text that is no id" in docs/reference/filter-format.md.
func hashQuery(id string, form Form, seed uint64) (uint64, bool) {
	// A buffer on the stack, large enough for every id except long text.
	var buffer [64]byte
	canonical, ok := buffer[:0], false
	switch form {
	case UUID:
		canonical, ok = appendUUID(canonical, id)
	case Integer:
		canonical, ok = appendInteger(canonical, id)
	}
	if !ok {
		canonical = append(buffer[:0], id...)
		ok = form == Text && isReadAlike(id)
	}
	return xxh3(canonical, seed), ok
}

// Returns false if an origin may remove a part of the text before it looks up the id.
func isReadAlike(id string) bool {
	for n := 0; n < len(id); n++ {
		switch c := id[n]; {
		case c < ' ', c == 0x7f, c == ';', c == '?', c == '#', c == '%':
			return false
		case (c == ' ' || c == '/') && (n == 0 || n == len(id)-1):
			return false
		}
	}
	return id != "" && !strings.HasPrefix(id, "\ufeff")
}

// Appends the canonical spelling of a UUID: lower-case hex digits with hyphens. Accepts 32 hex digits with or without
// the usual hyphens, also in braces or after `urn:uuid:`. Returns false for other text.
func appendUUID(to []byte, id string) ([]byte, bool) {
	if len(id) >= 9 && isURN(id[:9]) {
		id = id[9:]
	} else if len(id) >= 2 && id[0] == '{' && id[len(id)-1] == '}' {
		id = id[1 : len(id)-1]
	}
	hyphens := len(id) == 36
	if !hyphens && len(id) != 32 {
		return nil, false
	}
	for n := 0; n < len(id); n++ {
		digit := id[n]
		if length := len(to); length == 8 || length == 13 || length == 18 || length == 23 {
			to = append(to, '-')
			if hyphens {
				if digit != '-' {
					return nil, false
				}
				continue
			}
		}
		if 'A' <= digit && digit <= 'F' {
			digit += 'a' - 'A'
		}
		if (digit < '0' || digit > '9') && (digit < 'a' || digit > 'f') {
			return nil, false
		}
		to = append(to, digit)
	}
	return to, true
}

func isURN(text string) bool {
	const urn = "urn:uuid:"
	for n := range urn {
		letter := text[n]
		if 'A' <= letter && letter <= 'Z' {
			letter += 'a' - 'A'
		}
		if letter != urn[n] {
			return false
		}
	}
	return true
}

// Appends the canonical spelling of a decimal integer: without plus sign and leading zeros. Returns false for text that
// is not an integer from -2^127 to 2^127 - 1.
func appendInteger(to []byte, id string) ([]byte, bool) {
	negative, magnitudeMax := false, integerMax
	if id != "" && (id[0] == '-' || id[0] == '+') {
		if negative = id[0] == '-'; negative {
			magnitudeMax = integerMinAbs
		}
		id = id[1:]
	}
	if id == "" {
		return nil, false
	}
	for n := 0; n < len(id); n++ {
		if id[n] < '0' || id[n] > '9' {
			return nil, false
		}
	}
	for len(id) > 1 && id[0] == '0' {
		id = id[1:]
	}
	// Numbers with equally many digits are ordered like their texts.
	if len(id) > len(magnitudeMax) || len(id) == len(magnitudeMax) && id > magnitudeMax {
		return nil, false
	}
	if negative && id != "0" {
		to = append(to, '-')
	}
	return append(to, id...), true
}

// The decimal digits of 2^127 - 1 and 2^127: the largest magnitudes of a positive and of a negative integer.
const (
	integerMax    = "170141183460469231731687303715884105727"
	integerMinAbs = "170141183460469231731687303715884105728"
)
