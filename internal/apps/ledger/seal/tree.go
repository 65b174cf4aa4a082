package seal

import (
	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
)

var hasher = rfc6962.DefaultHasher

// leafHash is the hash of an entry's canonical bytes.
func leafHash(canonical []byte) []byte { return hasher.HashLeaf(canonical) }

// rootOf returns the root of the tree over leaves.
func rootOf(leaves []leaf) []byte {
	root, _ := grow(leaves, nil)
	return root
}

// grow returns the root of the tree over leaves. It hands each inner node to visit.
func grow(leaves []leaf, visit compact.VisitFn) ([]byte, error) {
	factory := compact.RangeFactory{Hash: hasher.HashChildren}
	tree := factory.NewEmptyRange(0)
	for _, l := range leaves {
		if err := tree.Append(l.hash, visit); err != nil {
			return nil, err
		}
	}
	if len(leaves) == 0 {
		return hasher.EmptyRoot(), nil
	}
	return tree.GetRootHash(nil)
}

// pathOf returns the hashes that lead from a leaf to the root: RFC 6962's inclusion proof.
func pathOf(leaves []leaf, index uint64) ([][]byte, error) {
	nodes := map[compact.NodeID][]byte{}
	if _, err := grow(leaves, func(id compact.NodeID, hash []byte) { nodes[id] = hash }); err != nil {
		return nil, err
	}
	wanted, err := proof.Inclusion(index, uint64(len(leaves)))
	if err != nil {
		return nil, err
	}
	hashes := make([][]byte, len(wanted.IDs))
	for i, id := range wanted.IDs {
		hashes[i] = nodes[id]
	}
	return wanted.Rehash(hashes, hasher.HashChildren)
}
