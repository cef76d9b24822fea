//! Prints what would read better in our sources. It never fails for that: `make lint` shows it.

use tare_tidy::{root, sources};

fn main() -> std::io::Result<()> {
    let advice = sources::in_all(&root(), sources::advice)?;
    advice.iter().for_each(|line| println!("advice: {line}"));
    println!("tare-tidy: {} lines of advice", advice.len());
    Ok(())
}
