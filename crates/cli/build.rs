//! Puts every recorded counterexample into the program, so that an installed one has them and a new file is picked up by
//! itself.

use std::{env, error::Error, fmt::Write as _, fs, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../specs/counterexamples").canonicalize()?;
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut paths =
        fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, std::io::Error>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    if paths.is_empty() {
        return Err(format!("{} holds no counterexample", folder.display()).into());
    }
    let mut list = String::from("&[\n");
    for path in &paths {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        writeln!(list, "    ({name:?}, include_str!({:?})),", path.display().to_string())?;
    }
    list += "]\n";
    fs::write(Path::new(&env::var("OUT_DIR")?).join("counterexamples.rs"), list)?;
    Ok(())
}
