//! Linker flags of the shared object.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Every symbol is bound when the object is loaded: the hand must never run the dynamic linker's lazy resolver,
    // which uses the thread-local area of the thread that the hand was cloned from.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--gc-sections");
}
