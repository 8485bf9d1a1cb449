//! The instructions that use libphp's global offset table, on x86-64.

use iced_x86::{Code as Opcode, Decoder, DecoderOptions, Instruction, OpKind, Register};

use super::{Entries, Patch};

/// Bytes of `call` and `jmp` with a distance of 32 bits.
const BRANCH_BYTES: usize = 5;

/// Bytes of `mov` from an address that is relative to the next instruction.
const LOAD_BYTES: usize = 7;

/// The opcode of `lea`, in place of that of `mov`.
const LEA: u8 = 0x8d;

/// `endbr64` and `bnd`, which may come before the jump of a stub.
const BRANCH_MARK: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
const BOUND: u8 = 0xf2;

/// `jmp` to the address in a table entry.
const INDIRECT_JUMP: [u8; 2] = [0xff, 0x25];

/// A library's code. Addresses are relative to its base.
#[derive(Debug)]
pub(super) struct Code<'a> {
    pub(super) bytes: &'a [u8],
    /// Address of the first byte.
    pub(super) start: u64,
    /// End of the library.
    pub(super) end: u64,
}

impl Code<'_> {
    /// The instructions that need not read the table, and the entries that they read. `value_of`
    /// returns the value of a table entry within the library.
    ///
    /// Compilers write no data between instructions, so that decoding one after the other finds
    /// all. A byte sequence that is none would have to hit the address of a stub or of an entry to
    /// be changed.
    pub(super) fn patches(&self, value_of: impl Fn(u64) -> Option<u64>) -> (Vec<Patch>, Entries) {
        let mut patches = Vec::new();
        let mut entries = Entries::new();
        let mut decoder = Decoder::with_ip(64, self.bytes, self.start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            let Some(entry) = self.entry_of(&instruction) else {
                continue;
            };
            let Some(value) = value_of(entry) else {
                continue;
            };
            if let Some(patch) = self.patch(&instruction, value) {
                patches.push(patch);
                entries.insert(entry, value);
            }
        }
        (patches, entries)
    }

    /// The table entry that an instruction reads: a call or jump by its stub, a load directly.
    fn entry_of(&self, instruction: &Instruction) -> Option<u64> {
        match instruction.code() {
            Opcode::Call_rel32_64 | Opcode::Jmp_rel32_64 if instruction.len() == BRANCH_BYTES => {
                self.entry_of_stub(instruction.near_branch64())
            }
            Opcode::Mov_r64_rm64
                if instruction.len() == LOAD_BYTES
                    && instruction.op1_kind() == OpKind::Memory
                    && instruction.memory_base() == Register::RIP
                    && instruction.segment_prefix() == Register::None =>
            {
                Some(instruction.memory_displacement64())
            }
            _ => None,
        }
    }

    /// The entry that the stub at `address` jumps to.
    fn entry_of_stub(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let stub = self.bytes.get(offset..)?;
        let jump = stub.strip_prefix(&BRANCH_MARK).unwrap_or(stub);
        let jump = jump.strip_prefix(&[BOUND]).unwrap_or(jump);
        let distance = jump.strip_prefix(&INDIRECT_JUMP)?.first_chunk()?;
        let after = stub.len() - jump.len() + INDIRECT_JUMP.len() + distance.len();
        let distance = i64::from(i32::from_le_bytes(*distance));
        (address + after as u64).checked_add_signed(distance)
    }

    /// The same instruction with the value of its table entry.
    fn patch(&self, instruction: &Instruction, value: u64) -> Option<Patch> {
        let at = usize::try_from(instruction.ip() - self.start).ok()?;
        let distance = i64::try_from(value).ok()? - i64::try_from(instruction.next_ip()).ok()?;
        let distance = i32::try_from(distance).ok()?.to_le_bytes();
        let code_end = self.start + self.bytes.len() as u64;
        if instruction.code() != Opcode::Mov_r64_rm64 {
            // What is called is code.
            let is_code = (self.start..code_end).contains(&value);
            return is_code.then(|| Patch { at: at + 1, bytes: distance.to_vec() });
        }
        let register_field = *self.bytes.get(at + 2)?;
        let bytes = [&[LEA, register_field], distance.as_slice()].concat();
        (value < self.end).then_some(Patch { at: at + 1, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Code at 0x1000, whose table entry at 0x3000 has the address 0x1010, and that at 0x3008 the
    /// address 0x2000.
    fn patches(bytes: &[u8]) -> (Vec<Patch>, Entries) {
        let mut code = bytes.to_vec();
        code.resize(0x40, 0x90);
        // Two stubs at 0x1040: for the entries at 0x3000 and, of another library, at 0x3010.
        code.extend([0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0xb6, 0x1f, 0, 0, 0x66, 0x90]);
        code.extend([0xff, 0x25, 0xbe, 0x1f, 0, 0]);
        let code = Code { bytes: &code, start: 0x1000, end: 0x4000 };
        code.patches(|entry| match entry {
            0x3000 => Some(0x1010),
            0x3008 => Some(0x2000),
            _ => None,
        })
    }

    #[test]
    fn a_call_through_a_stub_becomes_a_call_of_the_function() {
        let (found, entries) = patches(&[0xe8, 0x3b, 0, 0, 0]);
        assert_eq!(found, [Patch { at: 1, bytes: vec![0x0b, 0, 0, 0] }]);
        assert_eq!(entries, Entries::from([(0x3000, 0x1010)]));
        let (found, _) = patches(&[0xe9, 0x3b, 0, 0, 0]);
        assert_eq!(found, [Patch { at: 1, bytes: vec![0x0b, 0, 0, 0] }]);
    }

    #[test]
    fn a_load_of_an_address_becomes_its_computation() {
        // mov 0x3008(%rip), %rbx
        let (found, entries) = patches(&[0x48, 0x8b, 0x1d, 0x01, 0x20, 0, 0]);
        assert_eq!(found, [Patch { at: 1, bytes: vec![0x8d, 0x1d, 0xf9, 0x0f, 0, 0] }]);
        assert_eq!(entries, Entries::from([(0x3008, 0x2000)]));
    }

    #[test]
    fn other_instructions_stay() {
        for bytes in [
            // A call of another library's function, and one that has no stub.
            &[0xe8, 0x47, 0, 0, 0][..],
            &[0xe8, 0x10, 0, 0, 0],
            // mov 0x3008(%rip), %ebx, as 32 bits; mov %fs:0x3008(%rip), %rbx; mov 8(%rbx), %rax
            &[0x8b, 0x1d, 0x02, 0x20, 0, 0],
            &[0x64, 0x48, 0x8b, 0x1d, 0, 0x20, 0, 0],
            &[0x48, 0x8b, 0x43, 0x08],
            // The bytes of such a call within a constant.
            &[0x48, 0xb8, 0xe8, 0x39, 0, 0, 0, 0, 0, 0],
        ] {
            assert_eq!(patches(bytes), (Vec::new(), Entries::new()), "{bytes:x?}");
        }
    }

    #[test]
    fn a_call_of_data_stays() {
        let mut code = vec![0xe8, 0x3b, 0, 0, 0];
        code.resize(0x40, 0x90);
        code.extend([0xff, 0x25, 0xc2, 0x1f, 0, 0]);
        let code = Code { bytes: &code, start: 0x1000, end: 0x4000 };
        let (found, _) = code.patches(|_| Some(0x2000));
        assert_eq!(found, []);
    }
}
