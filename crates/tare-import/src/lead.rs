//! What prose says of the output below it: whose it is, that it is one more run of the same, or
//! nothing.

use crate::lead_words::{AGAIN, CJK_AGAIN, CJK_EMPTY, EMPTY, LINKS, OPENERS, PREPOSITIONS};

/// What a sentence says of the output that follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lead {
    /// Words that tell it from others.
    Names(String),
    /// One more run of what was above.
    Again,
    Nothing,
}

/// A name longer than this is cut.
const NAME_MAX: usize = 80;
/// A sentence with more words than these that say something is searched for the clause that names.
const WORDS_MAX: usize = 8;
/// Sentences before the last that are looked at.
const BACK: usize = 4;

/// Of the paragraphs above an output, the sentence nearest to it that says something.
pub fn lead(paragraphs: &[String]) -> Lead {
    let sentences = paragraphs.iter().flat_map(|text| sentences(text));
    let sentences: Vec<&str> = sentences.collect();
    let last: Vec<&str> = sentences.into_iter().rev().take(BACK).collect();
    let said = last.iter().map(|text| (*text, of_sentence(text)));
    let mut said = said.filter(|(_, found)| *found != Lead::Nothing);
    let Some((text, nearest)) = said.next() else { return Lead::Nothing };
    if nearest == Lead::Again || text.trim_end().ends_with([':', '：']) || leads(text) {
        return nearest;
    }
    // "Now the plain VM. Same command, only the address changes."
    let better = said.find(|(text, found)| *found != Lead::Again && leads(text));
    better.map_or(nearest, |(_, found)| found)
}

/// Whether a sentence leads to what follows: "on the host", "now with TLS", "web3."
fn leads(text: &str) -> bool {
    let words = words(text);
    let is_short = words.len() <= 3 && words.iter().any(|word| word.kind == Kind::Content);
    is_short || names_a_place(&words)
}

/// "on the host", "now with TLS".
fn names_a_place(words: &[Word]) -> bool {
    let opens = words.first().is_some_and(|word| OPENERS.contains(word.lower.as_str()));
    let articles = "the a an der dem la le el";
    let is_article = |word: &Word| articles.split(' ').any(|own| own == word.lower);
    let leads = |at: usize| {
        let next = words.get(at + 1);
        let behind = words.get(at + 2).is_some_and(|word| word.kind == Kind::Content);
        next.is_some_and(|next| next.kind != Kind::Empty || (is_article(next) && behind))
    };
    opens || (0..words.len()).any(|at| is_preposition(&words[at].lower) && leads(at))
}

fn is_preposition(word: &str) -> bool {
    PREPOSITIONS.contains(word)
}

/// What remains of a text without the words around it that say nothing of whose an output is.
pub fn name(text: &str) -> Option<String> {
    match of_sentence(text) {
        Lead::Names(name) => Some(name),
        Lead::Again | Lead::Nothing => None,
    }
}

/// The names that a sentence lists for outputs that follow one after another: "first 1.8.3 then
/// 1.9.0:", "web1, then web2", "Envoy and HAProxy, in this order". Empty where it lists none.
pub fn list(paragraph: &str) -> Vec<String> {
    let sentence = sentences(paragraph).last().unwrap_or_default();
    if !lists_several(sentence) {
        return Vec::new();
    }
    let mut text = sentence.to_owned();
    for mark in [
        " and then ",
        ", then ",
        " then ",
        " and ",
        ", dann ",
        " dann ",
        " und ",
        "、",
        ", puis ",
        " y ",
        ", después ",
        " después ",
        " e ",
    ] {
        text = text.replace(mark, "\u{1}");
    }
    let opens = |name: String| {
        let first = name.split(' ').next().unwrap_or("").to_lowercase();
        match AGAIN.contains(first.as_str()) && name.contains(' ') {
            true => name[first.len()..].trim().to_owned(),
            false => name,
        }
    };
    let names = text.split(['\u{1}', ',']).filter_map(name).map(opens);
    let names = names.filter(|name| !name.starts_with(['(', '-']));
    let names: Vec<String> = names.collect();
    let is_short = names.iter().all(|name| name.split_whitespace().count() <= 6);
    if !is_short || names.len() < 2 { Vec::new() } else { names }
}

/// Whether a text says that the outputs behind it are of several, one after another.
pub fn lists_several(text: &str) -> bool {
    let lower = text.to_lowercase();
    const ORDERED: [&str; 13] = [
        " then ",
        "this order",
        "that order",
        "same order",
        "respectively",
        " dann ",
        "danach",
        "reihenfolge",
        " puis ",
        "después",
        "depois",
        "下が",
        "再是",
    ];
    const FIRST: [&str; 8] =
        ["first", "erster", "erst ", "zuerst", "d'abord", "premier", "primero", "先"];
    const NEXT: [&str; 8] =
        ["second", "zweiter", "deuxième", "segundo", "third", "dritte", "último", "再"];
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    has(&ORDERED) || (has(&FIRST) && has(&NEXT))
}

/// The names that a heading lists: "nginx, Envoy", "runc vs Kata".
pub fn heading_list(heading: &str) -> Vec<String> {
    let text = [" vs. ", " vs ", " and ", " und ", " / ", " et ", " y "]
        .iter()
        .fold(heading.to_owned(), |text, mark| text.replace(mark, ","));
    let names: Vec<String> = text.split(',').filter_map(name).collect();
    let is_short = names.iter().all(|name| name.split_whitespace().count() <= 3);
    if !is_short || names.len() < 2 { Vec::new() } else { names }
}

/// "same order": of the names that were listed before.
pub fn is_same_order(text: &str) -> bool {
    let lower = text.to_lowercase();
    ["same order", "gleicher reihenfolge", "même ordre", "mismo orden"]
        .iter()
        .any(|p| lower.contains(p))
}

/// Whether a list says how often each was run.
pub fn is_counted(text: &str) -> bool {
    let lower = text.to_lowercase();
    let takes_turns = ["alternat", "in turn", "abwechselnd", "taking turns", "interleaved"];
    if takes_turns.iter().any(|word| lower.contains(word)) {
        return false;
    }
    ["times", "runs each", "mal ", "fois", "veces", "回", "次"]
        .iter()
        .any(|word| lower.contains(word))
}

/// Whether a heading or label says whose what follows is. "A" and "Before" do, "Results" and
/// "Second run" do not.
pub fn is_name(text: &str) -> bool {
    let is_short = (1..=2).contains(&text.trim().chars().count());
    is_short
        || match of_sentence(text) {
            Lead::Names(_) => true,
            Lead::Again => false,
            Lead::Nothing => words(text).iter().any(|word| word.kind == Kind::Link),
        }
}

fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let ends = |c: char| matches!(c, '。' | '！' | '？' | '；');
    text.split(ends).flat_map(|part| part.split(". ")).flat_map(|part| part.split("! "))
}

fn of_sentence(text: &str) -> Lead {
    // Of "`wrk -c50`, on the VM:" the words, unless there is nothing but code.
    let without_code: String = text.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let has_words = words(&without_code).iter().any(|word| word.kind == Kind::Content);
    let text = if text.matches('`').count() > 1 && has_words { &without_code } else { text };
    let words = words(text);
    let content = words.iter().filter(|word| word.kind == Kind::Content).count();
    let is_again = words.iter().any(|word| is_again(&word.lower));
    // "second run, directly after" repeats; "again inside the VM" does not.
    // "second run, directly after" repeats; "repeated after disabling mitigations" does not.
    let first = self::words(clauses(text).first().copied().unwrap_or_default());
    let is_empty = first.iter().all(|word| word.kind != Kind::Content);
    let pairs = first.windows(2).any(|pair| is_another_run(&pair[0].lower, &pair[1].lower));
    let cjk = words.iter().any(|word| CJK_REPEATED.iter().any(|p| word.lower.contains(p)));
    let repeats = (is_empty && (pairs || first.iter().any(|word| is_repeated(&word.lower))) || cjk)
        && !names_a_place(&words);
    if content == 0 || repeats {
        return if is_again || repeats { Lead::Again } else { Lead::Nothing };
    }
    let is_long = trimmed(text).is_some_and(|name| name.ends_with('…'));
    if content > WORDS_MAX || is_long {
        let named = clauses(text).into_iter().rev();
        let named = named.filter_map(|clause| Some((clause, trimmed(clause)?)));
        let is_short = |name: &str| name.split_whitespace().count() <= WORDS_MAX;
        let named: Vec<_> = named.filter(|(_, name)| is_short(name)).collect();
        // The last that leads to it, or else the last of all.
        let found = named.iter().find(|(clause, _)| leads(clause)).or(named.first());
        if let Some((_, name)) = found {
            return Lead::Names(name.clone());
        }
    }
    trimmed(text).map_or(Lead::Nothing, Lead::Names)
}

/// Parts of a sentence; what is in parentheses stays together.
fn clauses(text: &str) -> Vec<&str> {
    let (mut found, mut start, mut depth) = (Vec::new(), 0, 0i32);
    for (at, c) in text.char_indices() {
        match c {
            '(' | '（' => depth += 1,
            ')' | '）' => depth -= 1,
            ',' | ';' | '–' | '—' | '，' | '、' | '?' if depth <= 0 => {
                found.push(&text[start..at]);
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    found.push(&text[start..]);
    found
}

/// From the first word that says something to the last.
fn trimmed(text: &str) -> Option<String> {
    let words = words(text);
    let first = words.iter().position(|word| word.kind == Kind::Content)?;
    let last = words.iter().rposition(|word| word.kind == Kind::Content)?;
    // "without a sidecar", "4 vCPUs", "behind haproxy", "TLS off".
    let mut from = first;
    while from > 0 && (words[from - 1].kind == Kind::Link || is_article_after_link(&words, from)) {
        from -= 1;
    }
    let is_switch = |at: usize| {
        words.get(at).is_some_and(|word| matches!(word.lower.as_str(), "on" | "off" | "an" | "aus"))
            && at + 1 == words.len()
    };
    let to = if is_switch(last + 1) { last + 1 } else { last };
    let text = &text[words[from].start..words[to].end];
    let text =
        balanced(text.trim_matches(|c: char| matches!(c, '*' | '`' | '"' | ':' | ',' | '.')));
    let text = without_phrases(text);
    let mut cut: String = text.chars().take(NAME_MAX).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    (!cut.is_empty()).then_some(cut)
}

/// Of languages that are written without spaces, what the words do not show.
fn without_phrases(text: &str) -> &str {
    let mut rest = text;
    loop {
        let before = rest;
        for phrase in CJK_EMPTY.split(' ') {
            rest = rest.strip_suffix(phrase).or(rest.strip_prefix(phrase)).unwrap_or(rest);
            rest = rest.trim_matches(|c: char| c.is_whitespace() || "：，、。:,".contains(c));
        }
        if rest == before || rest.is_empty() {
            return if rest.is_empty() { text } else { rest };
        }
    }
}

fn is_article_after_link(words: &[Word], at: usize) -> bool {
    at > 1
        && matches!(words[at - 1].lower.as_str(), "a" | "an" | "the" | "any")
        && words[at - 2].kind == Kind::Link
}

/// Without a parenthesis that is opened or closed outside.
fn balanced(text: &str) -> &str {
    let count = |mark: char| text.chars().filter(|c| *c == mark).count();
    match count('(').cmp(&count(')')) {
        std::cmp::Ordering::Greater => text.rsplit_once('(').map_or(text, |(before, _)| before),
        std::cmp::Ordering::Less => text.trim_end_matches(')'),
        std::cmp::Ordering::Equal => text,
    }
    .trim()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Tells no output from another.
    Empty,
    /// Belongs to what follows it: "without", "behind", a number.
    Link,
    Content,
}

struct Word {
    start: usize,
    end: usize,
    lower: String,
    kind: Kind,
}

fn words(text: &str) -> Vec<Word> {
    let mut found = Vec::new();
    let mut start = None;
    let ends =
        text.char_indices().map(|(at, c)| (at, c.is_whitespace())).chain([(text.len(), true)]);
    for (at, is_end) in ends {
        match (start, is_end) {
            (None, false) => start = Some(at),
            (Some(from), true) => {
                found.extend(word(text, from, at));
                start = None;
            }
            _ => {}
        }
    }
    found
}

fn word(text: &str, start: usize, end: usize) -> Option<Word> {
    let whole = &text[start..end];
    let bare = whole.trim_matches(|c: char| !c.is_alphanumeric() && !matches!(c, '%' | '+'));
    if !bare.contains(|c: char| c.is_alphanumeric() || c == '%') {
        return None;
    }
    let lower = bare.to_lowercase();
    let is_link = LINKS.contains(lower.as_str());
    // "1.8.3" is a version.
    let is_number =
        lower.starts_with(|c: char| c.is_ascii_digit()) && lower.matches('.').count() < 2;
    let kind = if is_link || is_number {
        Kind::Link
    } else if is_empty(&lower) {
        Kind::Empty
    } else {
        Kind::Content
    };
    Some(Word { start, end, lower, kind })
}

fn is_empty(word: &str) -> bool {
    let own = word.split(['\'', '’']).next().unwrap_or(word);
    if EMPTY.contains(word) || EMPTY.contains(own) {
        return true;
    }
    // Languages that are written without spaces.
    let is_cjk = |c: char| ('\u{3040}'..='\u{9fff}').contains(&c);
    if !word.chars().any(is_cjk) {
        return false;
    }
    let mut rest = word.to_owned();
    for phrase in CJK_EMPTY.split(' ') {
        rest = rest.replace(phrase, "");
    }
    !rest.chars().any(char::is_alphabetic)
}

fn is_again(word: &str) -> bool {
    AGAIN.contains(word) || CJK_AGAIN.split(' ').any(|p| word.contains(p))
}

/// "second run", "once more", "more times".
fn is_another_run(a: &str, b: &str) -> bool {
    const NTH: &str =
        "second third fourth fifth 2nd 3rd 4th 5th another zweiter dritter deuxième segunda";
    const RUN: &str = "run time try attempt iteration lauf messung essai corrida rodada";
    let within = |all: &str, word: &str| all.split(' ').any(|own| own == word);
    (within(NTH, a) && within(RUN, b))
        || matches!((a, b), ("once" | "twice", "more") | ("more", "times"))
}

/// Words of which one is enough, where nothing else leads to a name.
fn is_repeated(word: &str) -> bool {
    const WORDS: &str = "again repeat repeated rerun re-run nochmal nochmals erneut \
                         wiederholung encore nuevo novamente";
    WORDS.split(' ').any(|own| own == word)
}

/// The same, in languages that are written without spaces.
const CJK_REPEATED: [&str; 6] = ["もう一回", "もう一度", "回目", "又跑了一遍", "再跑", "再测"];

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Lead {
        lead(&[text.to_owned()])
    }

    #[test]
    fn a_sentence_names_what_follows() {
        for (text, name) in [
            ("results on TDX VM", "TDX VM"),
            ("on regular VM:", "regular VM"),
            ("Here is what I get on the host (no container):", "host (no container)"),
            ("Now the same again inside a Kata pod with 4 vCPUs:", "Kata pod with 4 vCPUs"),
            ("And without the sidecar:", "without the sidecar"),
            ("Then behind haproxy:", "behind haproxy"),
            ("with TLS off", "TLS off"),
            ("Jetzt in der VM:", "VM"),
            ("ohne Sidecar:", "ohne Sidecar"),
            ("TDX 虚拟机的测试结果如下：", "TDX 虚拟机"),
            ("We rebooted. On bare metal:", "bare metal"),
            ("- nginx in runc", "nginx in runc"),
        ] {
            let Lead::Names(found) = of(text) else { panic!("{text}: {:?}", of(text)) };
            assert_eq!(found, name, "{text}");
        }
    }

    #[test]
    fn a_sentence_that_names_nothing() {
        for text in
            ["Results:", "And ab, twice:", "As you can see, it drops by 20 % here.", "测试结果如下"]
        {
            assert_eq!(of(text), Lead::Nothing, "{text}");
        }
        for text in ["Again:", "second run", "Run 3:", "noch einmal:", "第二次测试结果："] {
            assert_eq!(of(text), Lead::Again, "{text}");
        }
    }

    #[test]
    fn a_sentence_lists_names() {
        for (text, names) in [
            ("first 1.8.3 then 1.9.0-rc:", &["1.8.3", "1.9.0-rc"][..]),
            ("More connections. web1, then web2:", &["web1", "web2"]),
            ("then Envoy and HAProxy, in this order:", &["Envoy", "HAProxy"]),
            ("On the VM and the host we saw this:", &[]),
        ] {
            assert_eq!(list(text), names, "{text}");
        }
    }

    #[test]
    fn of_a_long_sentence_the_last_clause_names() {
        let long = "We then moved everything over to the big second machine in rack twelve, disabled \
                    hyperthreading and turbo, and repeated the test on bare metal:";
        assert_eq!(of(long), Lead::Names("bare metal".into()));
    }
}
