<%!
import re

KEYWORDS = set(
    "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return "
    "self static struct super trait true type unsafe use where while abstract become box do final macro override priv try typeof unsized "
    "virtual yield inputs outputs".split()
)
TYPES = {"float": "f32", **{f"{sign}int{bits}_t": f"{'u' if sign else 'i'}{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}}


def rust_name(name):
    return f"{name}_" if name in KEYWORDS else name


def read_header(header, prefix):
    """What the header of a network says: numbers, its instance's fields, and its ports, each with a name and a type in Rust."""
    P = prefix.upper()
    ports = {}
    for kind in ("INPUT", "OUTPUT"):
        ports[kind] = []
        for name, number in re.findall(rf"#define {P}_{kind}_(\w+) (\d+) /\*", header):
            element = re.search(rf"#define {P}_{kind}_{number}_TYPE (\w+)", header)[1]
            shape = re.search(rf"#define {P}_{kind}_{number}_SHAPE {{(.*)}}", header)[1]
            type = TYPES[element]
            for size in reversed(shape.split(", ")):
                type = f"[{type}; {size}]"
            ports[kind].append((rust_name(name.lower()), type))
    instance = re.search(r"^struct (\w+)_instance {(.*?)^};", header, re.DOTALL | re.MULTILINE)
    return {
        "bytes": int(re.search(rf"#define {P}_ARENA_BYTES (\d+)", header)[1]),
        "alignment": int(re.search(rf"#define {P}_ARENA_ALIGNMENT (\d+)", header)[1]),
        "context": re.search(rf"#define {P}_CONTEXT (\d+)", header),
        "fields": instance[2].count(";") if instance else 0,
        **ports,
    }
%>\
//! Neural network${"s" * (len(texts) > 1)} ${", ".join(texts)}, compiled to C by deeploy: no standard library, no allocation.
//!
//! ```ignore
//! let mut arena = ${name}::Arena::new(); // or a static one, in firmware
//! let mut network = ${name}::Network::new(&mut arena)?;
//! network.run(${", ".join(["&" + n for n, _ in read_header(texts[name], name)["INPUT"]] + ["&mut " + n for n, _ in read_header(texts[name], name)["OUTPUT"]])})?;
//! ```
#![no_std]

pub use self::${rust_name(name)}::*;

/// Why a function of a network failed: `enum deeploy_status` of `deeploy_network.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error(pub i32);

fn check(status: i32) -> Result<(), Error> {
    if status == 0 {
        Ok(())
    } else {
        Err(Error(status))
    }
}
% for prefix, header in texts.items():
<%
N = read_header(header, prefix)
arguments = ", ".join([f"{n}: &{t}" for n, t in N["INPUT"]] + [f"{n}: &mut {t}" for n, t in N["OUTPUT"]])
%>\

/// Network ${prefix}.
pub mod ${rust_name(prefix)} {
    use super::{check, Error};
    use core::{ffi::c_void, marker::PhantomData};

    /// Working memory.
    #[repr(C, align(${N["alignment"]}))]
    pub struct Arena([u8; ${max(1, N["bytes"])}]);

    impl Arena {
        pub const fn new() -> Self {
            Arena([0; ${max(1, N["bytes"])}])
        }
    }

    impl Default for Arena {
        fn default() -> Self {
            Self::new()
        }
    }

    /// `struct ${prefix}_instance`: as many fields, none of more than eight bytes.
    #[repr(C, align(8))]
    struct Instance([u64; ${N["fields"]}]);

    extern "C" {
        fn ${prefix}_instance_init(instance: *mut Instance, arena: *mut c_void, bytes: usize) -> i32;
        fn ${prefix}_instance_run(instance: *mut Instance, inputs: *const *const c_void, outputs: *const *mut c_void) -> i32;
% if N["context"]:
        fn ${prefix}_instance_position(instance: *const Instance) -> u32;
        fn ${prefix}_instance_seek(instance: *mut Instance, position: u32) -> i32;
% endif
    }

    /// An instance with working memory of its own. Several of them are independent.
    pub struct Network<'a> {
        instance: Instance,
        arena: PhantomData<&'a mut Arena>,
    }

    impl<'a> Network<'a> {
        pub fn new(arena: &'a mut Arena) -> Result<Self, Error> {
            let mut network = Network { instance: Instance([0; ${N["fields"]}]), arena: PhantomData };
            check(unsafe { ${prefix}_instance_init(&mut network.instance, arena as *mut Arena as *mut c_void, ${N["bytes"]}) })?;
            Ok(network)
        }

        /// One inference.
        #[allow(clippy::too_many_arguments)]
        pub fn run(&mut self, ${arguments}) -> Result<(), Error> {
            let inputs: [*const c_void; ${len(N["INPUT"])}] = [${", ".join(f"{n} as *const _ as *const c_void" for n, _ in N["INPUT"])}];
            let outputs: [*mut c_void; ${len(N["OUTPUT"])}] = [${", ".join(f"{n} as *mut _ as *mut c_void" for n, _ in N["OUTPUT"])}];
            check(unsafe { ${prefix}_instance_run(&mut self.instance, inputs.as_ptr(), outputs.as_ptr()) })
        }
% if N["context"]:

        /// Rows that the states hold.
        pub fn position(&self) -> u32 {
            unsafe { ${prefix}_instance_position(&self.instance) }
        }

        /// Discards all rows from `position` on; 0 begins a new sequence.
        pub fn seek(&mut self, position: u32) -> Result<(), Error> {
            check(unsafe { ${prefix}_instance_seek(&mut self.instance, position) })
        }
% endif
    }
}
% endfor
