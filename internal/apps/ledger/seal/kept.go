package seal

// Resealed is the kind of a finding that kept seals alone tell: the seal is not the one that was kept.
const Resealed = "resealed"

// AgainstKept compares the seals that somebody has kept elsewhere with those that are there, of a tenant, and
// says how many were compared. Whoever can write to the whole store can seal all again, and cut off what is
// newest: only this finds it.
func AgainstKept(tenant string, kept, there []Seal) (found []Finding, compared int64) {
	hashes := map[int64]string{}
	for _, s := range there {
		hashes[s.Number] = s.Hash
	}
	for _, s := range kept {
		if s.Tenant != tenant {
			continue
		}
		finding := Finding{Kind: Resealed, Tenant: tenant, Document: sealKey(tenant, s.Number).String(), Seal: s.Number}
		switch hash, known := hashes[s.Number]; {
		case !known:
			finding.Detail = "the seal that was kept is gone"
		case hash != s.Hash:
			finding.Detail = "the seal is not the one that was kept: the books were sealed again"
			compared++
		default:
			compared++
			continue
		}
		found = append(found, finding)
	}
	return found, compared
}
