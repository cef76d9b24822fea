//! Prints advice on the style of our sources, for `make lint`. Advice is never a failure.

use tare_tidy::{root, sources};

fn main() -> std::io::Result<()> {
    let advice = sources::in_all(&root(), sources::advice)?;
    advice.iter().for_each(|line| println!("advice: {line}"));
    println!("tare-tidy: {} lines of advice", advice.len());
    Ok(())
}
