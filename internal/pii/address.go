package pii

import (
	"net/netip"
	"slices"
	"strings"
)

// hasIPv4: leading zeros, or a fifth number, make it a date or a version.
func hasIPv4(value []byte) bool {
	for run := range strings.FieldsFuncSeq(string(value), func(r rune) bool { return r != '.' && (r < '0' || r > '9') }) {
		for numbers := range strings.SplitSeq(run, "..") {
			if _, err := netip.ParseAddr(strings.Trim(numbers, ".")); err == nil {
				return true
			}
		}
	}
	return false
}

// hasIPv6: an address may stand behind nothing, a mark, a label and a colon, or letters that are no part of it.
func hasIPv6(value []byte) bool {
	for start := 0; start < len(value); {
		if !isHex(value[start]) && value[start] != ':' {
			start++
			continue
		}
		end, colons := start, 0
		for end < len(value) && (isHex(value[end]) || value[end] == ':') {
			if value[end] == ':' {
				colons++
			}
			end++
		}
		if colons >= 2 && (end == len(value) || !isAlphanumeric(value[end])) && endsInIPv6(value, start, end) {
			return true
		}
		start = end
	}
	return false
}

// longestIPv6 is eight groups of four and the colons between them.
const longestIPv6 = 39

func endsInIPv6(value []byte, start, end int) bool {
	if value[end-1] == ':' && value[end-2] != ':' {
		end-- // a sentence goes on
	}
	word := start // where the letters and digits begin that the run begins with
	for word > 0 && isAlphanumeric(value[word-1]) {
		word--
	}
	group := start // where the first group ends, with what may be glued to it
	for value[group] != ':' {
		group++
	}
	for i := max(start, end-longestIPv6); i < end; i++ {
		colons, full, ok := isIPv6(value[i:end])
		switch {
		case !ok:
		case i == word: // nothing, or a mark, before it
			return true
		case value[i-1] == ':':
			// Short forms such as ::b are what a label with two colons looks like too.
			if colons >= 3 || isGiven(value[i:end]) {
				return true
			}
		case i < group && (i == start || group-start > 4) && spelled(value[word:i], len(value), letter, letter):
			// So are longer ones, behind a label that ends in one of a to f.
			if full || isGiven(value[i:end]) {
				return true
			}
		}
	}
	return false
}

// isIPv6: eight groups of two digits are an EUI-64, as are other lists of bytes.
func isIPv6(address []byte) (colons int, full, ok bool) {
	text := string(address)
	if _, err := netip.ParseAddr(text); err != nil || text == "::" {
		return 0, false, false
	}
	full = !strings.Contains(text, "::")
	pairs := !slices.ContainsFunc(strings.Split(text, ":"), func(group string) bool { return len(group) != 2 })
	return strings.Count(text, ":"), full, !full || (full && !pairs)
}

// isGiven: the first group is whole, and of a range that people have: 2000::/3, fc00::/7, fe80::/10.
func isGiven(address []byte) bool {
	if len(address) < 5 || address[4] != ':' {
		return false
	}
	first, second := address[0]|0x20, address[1]|0x20 // digits stay as they are
	return first == '2' || first == '3' || (first == 'f' && (second == 'c' || second == 'd' || second == 'e'))
}
