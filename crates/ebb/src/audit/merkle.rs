//! Merkle trees as in RFC 6962: a leaf and a node hash differently, so that neither can pass for the other, and a tree
//! of any size has one shape. Invariant: a root can be computed leaf by leaf in memory that grows with the logarithm.

use sha2::{Digest, Sha256};

/// A SHA-256 value.
pub type Hash = [u8; 32];

/// What a leaf with this content hashes to.
pub fn leaf_hash(content: &[u8]) -> Hash {
    Sha256::new().chain_update([0x00]).chain_update(content).finalize().into()
}

fn node_hash(left: &Hash, right: &Hash) -> Hash {
    Sha256::new().chain_update([0x01]).chain_update(left).chain_update(right).finalize().into()
}

/// A root in the making: leaves go in one by one.
#[derive(Debug, Default)]
pub struct Tree {
    /// Roots of whole subtrees, the largest first; their sizes are the bits of `size`.
    peaks: Vec<Hash>,
    size: u64,
}

impl Tree {
    /// Adds the next leaf.
    pub fn push(&mut self, leaf: Hash) {
        let mut hash = leaf;
        for _ in 0..self.size.trailing_ones() {
            if let Some(left) = self.peaks.pop() {
                hash = node_hash(&left, &hash);
            }
        }
        self.peaks.push(hash);
        self.size += 1;
    }

    /// How many leaves it has.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The root over all leaves so far; of no leaves, the hash of nothing.
    pub fn root(&self) -> Hash {
        let mut peaks = self.peaks.iter().rev();
        match peaks.next() {
            None => Sha256::digest([]).into(),
            Some(last) => peaks.fold(*last, |right, left| node_hash(left, &right)),
        }
    }
}

/// The root over these leaves.
pub fn root(leaves: &[Hash]) -> Hash {
    let mut tree = Tree::default();
    leaves.iter().for_each(|leaf| tree.push(*leaf));
    tree.root()
}

/// The hashes that lead from leaf `index` to the root, lowest first; `None` when there is no such leaf.
pub fn inclusion_proof(leaves: &[Hash], index: usize) -> Option<Vec<Hash>> {
    if index >= leaves.len() {
        return None;
    }
    let mut proof = Vec::new();
    let (mut leaves, mut index) = (leaves, index);
    while leaves.len() > 1 {
        let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
        if index < left.len() {
            proof.push(root(right));
            leaves = left;
        } else {
            proof.push(root(left));
            index -= left.len();
            leaves = right;
        }
    }
    proof.reverse();
    Some(proof)
}

/// Whether `proof` leads from `leaf`, number `index` of `size`, to `root`.
pub fn verify_inclusion(leaf: &Hash, index: u64, size: u64, proof: &[Hash], root: &Hash) -> bool {
    if index >= size {
        return false;
    }
    // RFC 9162, 2.1.3.2.
    let (mut node, mut last, mut hash) = (index, size - 1, *leaf);
    for sibling in proof {
        if last == 0 {
            return false;
        }
        if node & 1 == 1 || node == last {
            hash = node_hash(sibling, &hash);
            while node & 1 == 0 && node != 0 {
                node >>= 1;
                last >>= 1;
            }
        } else {
            hash = node_hash(&hash, sibling);
        }
        node >>= 1;
        last >>= 1;
    }
    last == 0 && hash == *root
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn leaves(count: usize) -> Vec<Hash> {
        (0..count).map(|i| leaf_hash(&i.to_be_bytes())).collect()
    }

    fn root_by_definition(leaves: &[Hash]) -> Hash {
        match leaves {
            [] => Sha256::digest([]).into(),
            [leaf] => *leaf,
            _ => {
                let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
                node_hash(&root_by_definition(left), &root_by_definition(right))
            }
        }
    }

    #[test]
    fn the_vectors_of_certificate_transparency_hold() {
        let content: [&[u8]; 8] = [
            b"",
            b"\x00",
            b"\x10",
            b"\x20\x21",
            b"\x30\x31",
            b"\x40\x41\x42\x43",
            b"\x50\x51\x52\x53\x54\x55\x56\x57",
            b"\x60\x61\x62\x63\x64\x65\x66\x67\x68\x69\x6a\x6b\x6c\x6d\x6e\x6f",
        ];
        let leaves: Vec<Hash> = content.iter().map(|content| leaf_hash(content)).collect();
        let expected = [
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
            "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
            "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
            "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
            "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
            "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
        ];
        for (size, expected) in (1..).zip(expected) {
            assert_eq!(hex::encode(root(&leaves[..size])), expected, "{size} leaves");
        }
    }

    #[test]
    fn every_leaf_of_every_small_tree_has_a_proof() {
        for size in 1..70 {
            let leaves = leaves(size);
            let root = root(&leaves);
            assert_eq!(root, root_by_definition(&leaves));
            for index in 0..size {
                let proof = inclusion_proof(&leaves, index).unwrap();
                assert!(verify_inclusion(&leaves[index], index as u64, size as u64, &proof, &root), "{index}/{size}");
            }
            assert_eq!(inclusion_proof(&leaves, size), None);
        }
    }

    proptest! {
        #[test]
        fn a_proof_fits_one_leaf_at_one_place_only(size in 1usize..300, seed: u64, flip: u8) {
            let leaves = leaves(size);
            let root = root(&leaves);
            let index = (seed % size as u64) as usize;
            let (leaf, at, of) = (leaves[index], index as u64, size as u64);
            let proof = inclusion_proof(&leaves, index).unwrap();
            prop_assert!(verify_inclusion(&leaf, at, of, &proof, &root));

            let mut other = leaf;
            other[usize::from(flip) % 32] ^= 1 << (flip % 8);
            prop_assert!(!verify_inclusion(&other, at, of, &proof, &root));
            if size > 1 {
                prop_assert!(!verify_inclusion(&leaf, (at + 1) % of, of, &proof, &root));
                prop_assert!(!verify_inclusion(&leaf, at, of, &proof[1..], &root));
            }
            prop_assert!(!verify_inclusion(&leaf, of, of, &proof, &root));
            let longer: Vec<Hash> = proof.iter().copied().chain([leaf]).collect();
            prop_assert!(!verify_inclusion(&leaf, at, of, &longer, &root));
        }
    }
}
