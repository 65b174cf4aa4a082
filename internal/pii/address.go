package pii

// hasIPv4: four numbers of 0 to 255 with dots between them, behind and before anything
// but a fifth. Leading zeros make it a date or a version.
func hasIPv4(value []byte) bool {
	for start := 0; start < len(value); {
		if class[value[start]] != digit {
			start++
			continue
		}
		numbers, small, i := 0, true, start
		for {
			from, n := i, 0
			for i < len(value) && class[value[i]] == digit {
				n = min(n, 999)*10 + int(value[i]-'0')
				i++
			}
			small = small && n <= 255 && (value[from] != '0' || i == from+1)
			numbers++
			if i+1 >= len(value) || value[i] != '.' || class[value[i+1]] != digit {
				break
			}
			i++
		}
		if numbers == 4 && small {
			return true
		}
		start = i
	}
	return false
}

// hasIPv6: an address behind nothing, a mark, a label and a colon, or letters that
// cannot be part of it.
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

// endsInIPv6 reports whether what ends the run of hex digits and colons, from some
// place on, is an address.
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
		case i < group && (i == start || group-start > 4) && isLetters(value[word:i]):
			// So are longer ones, behind a label that ends in one of a to f.
			if full || isGiven(value[i:end]) {
				return true
			}
		}
	}
	return false
}

func isLetters(value []byte) bool {
	for _, c := range value {
		if class[c] != letter {
			return false
		}
	}
	return true
}

// isIPv6 reads one address: how many colons it has, and whether it is written in full.
// Eight groups of two digits are an EUI-64, as are other lists of bytes.
func isIPv6(address []byte) (colons int, full, ok bool) {
	groups, size, gap, pairs := 0, 0, false, true
	for i, c := range address {
		switch {
		case c != ':':
			if size++; size > 4 {
				return 0, false, false
			}
			if size == 1 {
				groups++
			}
			continue
		case size == 0 && i == 0: // the first of two
		case size == 0 && (gap || address[i-1] != ':'):
			return 0, false, false
		case size == 0:
			gap = true
		}
		pairs = pairs && size == 2
		colons++
		size = 0
	}
	pairs = pairs && size == 2
	full = !gap && groups == 8 && size > 0 && address[0] != ':'
	return colons, full, (full && !pairs) || (gap && groups > 0 && groups < 8 && (size > 0 || address[len(address)-2] == ':') && (address[0] != ':' || address[1] == ':'))
}

// isGiven reports whether the first group is written in full, and of a range that
// people's addresses are in: 2000::/3, fc00::/7 and fe80::/10.
func isGiven(address []byte) bool {
	if len(address) < 5 || address[4] != ':' {
		return false
	}
	first, second := address[0]|0x20, address[1]|0x20 // digits stay as they are
	return first == '2' || first == '3' || (first == 'f' && (second == 'c' || second == 'd' || second == 'e'))
}
