use super::*;

type Fields = Vec<(String, String)>;

fn decoded(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, BlockDefect> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut fields = Vec::new();
    decoder.decode(block, |name, value| fields.push((text(name), text(value))))?;
    Ok(fields)
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits.chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

fn shown(fields: &Fields) -> String {
    fields.iter().map(|(name, value)| format!("{name}: {value}\n")).collect()
}

/// The examples of RFC 7541, appendix C: requests with and without Huffman's code, and replies in a
/// table so small (256 bytes) that entries are dropped.
#[test]
fn the_examples_of_the_standard_are_read() {
    let first = ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\n";
    let second = format!("{first}cache-control: no-cache\n");
    let third = ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\n\
                 custom-key: custom-value\n";
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let coded = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    for blocks in [plain, coded] {
        let mut decoder = Decoder::default();
        for (block, expected) in blocks.iter().zip([first, &second, third]) {
            assert_eq!(shown(&decoded(&mut decoder, &bytes(block)).unwrap()), expected);
        }
    }
    let replies = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e \
         919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 \
         821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed \
         4ee5 b106 3d50 07",
    ];
    let mut decoder = Decoder { table: DynamicTable::new(256), text: Vec::new() };
    let all: Vec<String> =
        replies.iter().map(|block| shown(&decoded(&mut decoder, &bytes(block)).unwrap())).collect();
    assert!(
        all[1].starts_with(":status: 307\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21")
    );
    assert!(
        all[2].starts_with(":status: 200\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:22")
    );
    assert!(
        all[2].ends_with("set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1\n")
    );
    // 4 + 65 + 36 + 98 + ... as the standard says: three entries, 215 bytes.
    assert!(decoder.table.field(NEWEST + 2).is_some() && decoder.table.field(NEWEST + 3).is_none());
}

#[test]
fn what_is_written_is_read_whatever_the_table_holds() {
    let mut random = tare_io::Random::stream(0, "hpack", 0);
    for _ in 0..200 {
        let mut decoder = Decoder::default();
        let mut held: Vec<(String, String)> = Vec::new();
        for _ in 0..40 {
            let (mut block, mut expected) = (Vec::new(), Vec::new());
            if random.chance(0.1) {
                put_table_bytes(0, &mut block);
                put_table_bytes(TABLE_BYTES, &mut block);
                held.clear();
            }
            for _ in 0..random.below(6) {
                let word = |random: &mut tare_io::Random, most| {
                    (0..random.below(most))
                        .map(|_| (b'a' + random.below(26) as u8) as char)
                        .collect()
                };
                let field: (String, String) = match random.below(4) {
                    0 if !held.is_empty() => held[random.below(held.len() as u64) as usize].clone(),
                    1 => ("accept".to_owned(), word(&mut random, 30)),
                    _ => (word(&mut random, 20), word(&mut random, 900)),
                };
                let form = match held.iter().rev().position(|own| *own == field) {
                    Some(behind) => Form::Indexed(NEWEST + behind),
                    None if random.chance(0.5) => Form::LiteralIndexed,
                    None => Form::Literal,
                };
                put_field(&field.0, &field.1, form, &mut block);
                if form == Form::LiteralIndexed && !is_static(&field.0, &field.1) {
                    held.push(field.clone());
                    let bytes =
                        |field: &(String, String)| field.0.len() + field.1.len() + ENTRY_BYTES;
                    while held.iter().map(bytes).sum::<usize>() > TABLE_BYTES {
                        held.remove(0);
                    }
                }
                expected.push(field);
            }
            assert_eq!(decoded(&mut decoder, &block), Ok(expected));
        }
    }
}

#[test]
fn blocks_that_break_the_rules_are_refused() {
    let of = |block: &[u8]| decoded(&mut Decoder::default(), block).unwrap_err();
    assert_eq!(of(&[0x80]), BlockDefect::NoEntry(0));
    assert_eq!(of(&[0xbe]), BlockDefect::NoEntry(62));
    assert_eq!(of(&[0x40, 0x05, b'a']), BlockDefect::Truncated);
    assert_eq!(of(&[0xff]), BlockDefect::Truncated);
    assert_eq!(of(&[0xff, 0xff, 0xff, 0xff, 0xff, 0x0f]), BlockDefect::NumberTooLarge);
    assert_eq!(of(&[0x00, 0x81, 0xff]), BlockDefect::Huffman);
    assert_eq!(of(&[0x88, 0x20]), BlockDefect::Resize, "behind a field");
    assert_eq!(of(&[0x3f, 0xe2, 0x1f]), BlockDefect::Resize, "to 4097 bytes");
    // Names an entry of 4 KiB again and again.
    let mut block = Vec::new();
    put_field("a", &"~".repeat(4000), Form::LiteralIndexed, &mut block);
    block.extend([0xbe; 300]);
    assert_eq!(of(&block), BlockDefect::ListTooLong);
}

#[test]
fn a_field_that_is_longer_than_the_table_empties_it() {
    let mut decoder = Decoder::default();
    let mut block = Vec::new();
    put_field("a", "b", Form::LiteralIndexed, &mut block);
    put_field("long", &"~".repeat(5000), Form::LiteralIndexed, &mut block);
    assert_eq!(decoded(&mut decoder, &block).unwrap().len(), 2);
    assert_eq!(decoded(&mut decoder, &[0xbe]), Err(BlockDefect::NoEntry(62)));
}
