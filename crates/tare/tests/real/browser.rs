//! Pages in a real browser: headless Chromium, driven by chromedriver.

mod driver;

use std::path::Path;

use driver::{Browser, Theme};
use serde_json::{Value, json};
use tare_report::steps::StepsReport;

use crate::runs::Desk;
use crate::util::str;
use crate::wait::until;

/// Finds faults that a person would see, by checking every element that is shown.
const INSPECT: &str = include_str!("browser/inspect.js");

const WIDTHS: [u32; 4] = [400, 1120, 1300, 1600];

/// Checks a page at all widths, in both themes, and as printed.
#[track_caller]
fn looks_right(browser: &Browser, page: &Path, pictures: usize) {
    for width in WIDTHS {
        for theme in [Theme::Light, Theme::Dark] {
            browser.look(width, theme);
            has_no_complaints(browser, page, pictures, &format!("{width} {theme:?}"));
        }
    }
    browser.look_as_printed();
    has_no_complaints(browser, page, pictures, "printed");
    let errors = browser.console_errors();
    assert!(errors.is_empty(), "{errors:#?}");
    let asked = browser.requests_beyond(page);
    assert!(asked.is_empty(), "the page asked for {asked:?}");
}

#[track_caller]
fn has_no_complaints(browser: &Browser, page: &Path, pictures: usize, how: &str) {
    browser.open(page);
    // Everything that can be unfolded is checked too.
    browser.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })");
    let seen = browser.run(INSPECT);
    let complaints = seen["complaints"].as_array().unwrap();
    assert!(complaints.is_empty(), "{how} {}: {complaints:#?}", page.display());
    let shown = seen["pictures"].as_u64().unwrap() as usize;
    assert!(shown >= pictures, "{how}: {shown} pictures, {pictures} expected");
}

/// A run with long names, a server that fails now and then, and several metrics.
fn page_of_a_run(desk: &Desk) -> std::path::PathBuf {
    let page = desk.folder.file("run.html");
    let tare = env!("CARGO_BIN_EXE_tare");
    let long = "a variant with quite a long name that says what it is in many words, as people do";
    let launch = |name: &str, flags: &str| {
        format!("--launch={name}=exec {tare} target --listen 127.0.0.1:{{port}} {flags}")
    };
    let all = [launch("plain", ""), launch(long, "--delay 300us"), launch("x", "--delay 100us")];
    let flags = ["compare", &all[0], &all[1], &all[2], "--metric", "throughput,p50", "-q"];
    let rest = ["--rounds", "6", "--cycles", "3", "--slice", "20ms", "--html", str(&page)];
    desk.tare(&[&flags[..], &rest].concat()).measured();
    page
}

#[test]
fn a_runs_page_is_whole_at_both_widths_and_in_both_themes() {
    let desk = Desk::new("browser-run");
    let page = page_of_a_run(&desk);
    let browser = Browser::start(&desk.folder.0);
    // Two forests, the curves, two plots of rounds, at least two of bars, the timeline.
    looks_right(&browser, &page, 8);
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.contains("--seed"), "the command repeats the run");
}

/// Two procedures that do and wait: one has long names, one a step that a person does.
fn page_of_procedures(desk: &Desk) -> (std::path::PathBuf, StepsReport) {
    let procedure = |name: &str, steps: &str| {
        let verify = "[[step]]\nname = \"it works\"\nkind = \"verify\"\nrun = \"true\"\n";
        let reset = "[reset]\nrun = \"true\"\nclean = \"true\"\n";
        let text = format!("name = \"{name}\"\n{reset}{steps}{verify}");
        desk.file(&format!("{name}.toml"), &text)
    };
    let slow = procedure(
        "by hand",
        "[[step]]\nname = \"an-address-that-is-one-long-word.of-a-namespace.svc.cluster.local\"\n\
         run = \"sleep 0.2\"\n\
         [[step]]\nname = \"a step with a name that says in many words what is to be done in it\"\n\
         wait = { run = \"sleep 0.1\" }\n\
         [[step]]\nname = \"a click in a web console\"\nmanual = true\ntook = \"90s\"\n",
    );
    let fast = procedure("prepared", "[[step]]\nname = \"all\"\nrun = \"sleep 0.05\"\n");
    let page = desk.folder.file("steps.html");
    let files = ["steps", str(&slow), str(&fast), "-r", "2", "-q", "--html", str(&page)];
    let told = desk.tare(&[&files[..], &["--json", "-"]].concat()).success().stdout;
    (page, serde_json::from_str(&told).unwrap())
}

#[test]
fn a_chart_of_steps_is_whole_at_both_widths_and_in_both_themes() {
    let desk = Desk::new("browser-steps");
    let (page, report) = page_of_procedures(&desk);
    let browser = Browser::start(&desk.folder.0);
    looks_right(&browser, &page, 0);
    for width in WIDTHS {
        browser.look(width, Theme::Light);
        browser.open(&page);
        // The edges of each step's lane, and of the bar in it.
        let charts = browser.run(
            "return [...document.querySelectorAll('.gantt')].map((chart) =>
               [...chart.querySelectorAll('li')].map((step) => {
                 const lane = step.querySelector('.lane').getBoundingClientRect();
                 const bar = step.querySelector('.bar').getBoundingClientRect();
                 return [lane.left, lane.right, bar.left, bar.right].map(Math.round);
               }))",
        );
        let charts: Vec<Vec<[f64; 4]>> = serde_json::from_value(charts).unwrap();
        assert_eq!(charts.len(), report.variants.len());
        let all = charts.iter().zip(&report.variants);
        let all = all.flat_map(|(chart, variant)| chart.iter().zip(&variant.steps));
        let ends = report.variants.iter().flat_map(|variant| &variant.steps);
        let ends = ends.filter(|step| !step.manual).map(|step| step.started_s + step.took_s);
        // Both charts have one scale.
        let longest = ends.fold(0.0, f64::max);
        for ([lane_from, lane_to, from, to], step) in all {
            if step.manual {
                assert_eq!(from, to, "what was recorded elsewhere is no bar");
                continue;
            }
            assert!(lane_to - lane_from > 60.0, "a lane to see: {charts:?}");
            assert!(*to <= lane_to + 3.0, "{width}: in its lane: {charts:?}");
            let at = |s: f64| lane_from + (lane_to - lane_from) * s / longest;
            let starts = (from - at(step.started_s)).abs();
            let ends = (to - at(step.started_s + step.took_s)).abs();
            assert!(starts <= 2.0 && ends <= 3.0, "{width}, {}: {charts:?}", step.name);
        }
    }
}

#[test]
fn pointing_at_a_dot_and_walking_by_keys_tell_what_it_is() {
    let desk = Desk::new("browser-hover");
    let page = page_of_a_run(&desk);
    let browser = Browser::start(&desk.folder.0);
    for (width, class) in [(1600, "wide"), (400, "narrow")] {
        browser.look(width, Theme::Light);
        browser.open(&page);
        let tip = || {
            browser.run(
                "const t = document.getElementById('tip'); return t.hidden ? '' : t.textContent",
            )
        };
        assert_eq!(tip(), "", "nothing is pointed at yet");
        browser.run(&format!(
            "document.querySelector('.plot.{class}').scrollIntoView({{ block: 'center' }})"
        ));
        browser.settle();
        let at = browser.run(&format!(
            "const plot = document.querySelector('.plot.{class}'); const svg = plot.querySelector('svg');
             const hit = JSON.parse(plot.querySelector('script').textContent)[0];
             const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
             return [box.left + hit[0] * scale, box.top + hit[1] * scale, hit[2]]"
        ));
        browser.point(at[0].as_f64().unwrap(), at[1].as_f64().unwrap());
        assert_eq!(tip(), at[2], "{width}");
        let inside = browser.run(
            "const b = document.getElementById('tip').getBoundingClientRect();
             return b.left >= 0 && b.right <= innerWidth && b.top >= 0",
        );
        assert_eq!(inside, true, "the tip is cut at {width}");
        browser.point(2.0, 2.0);
        assert_eq!(tip(), "", "pointed elsewhere");
        browser.run(&format!("document.querySelector('.plot.{class}').focus()"));
        browser.settle();
        browser.press("\u{e014}");
        let first = tip();
        browser.press("\u{e014}");
        assert!(first != "" && tip() != first, "{first} {}", tip());
    }
    let theme = browser.run(
        "const before = getComputedStyle(document.body).backgroundColor;
         document.querySelector('header button').click();
         return [before, getComputedStyle(document.body).backgroundColor]",
    );
    assert_ne!(theme[0], theme[1], "the button changes the theme");
    assert_eq!(browser.console_errors(), Vec::<Value>::new());
}

#[test]
fn without_scripts_the_page_says_the_same() {
    let desk = Desk::new("browser-plain");
    let page = page_of_a_run(&desk);
    let browser = Browser::start(&desk.folder.0);
    browser.look(1600, Theme::Light);
    browser.command("Emulation.setScriptExecutionDisabled", json!({ "value": true }));
    browser.open(&page);
    // The page's own scripts are off; the driver's still run.
    let seen = browser.run(INSPECT);
    assert_eq!(seen["complaints"], json!([]));
    assert!(seen["pictures"].as_u64().unwrap() >= 8, "{seen}");
    let buttons = browser.run("return document.querySelectorAll('header button').length");
    assert_eq!(buttons, 0, "no button where nothing would press it");
}

#[test]
fn text_from_outside_stays_text() {
    let desk = Desk::new("browser-hostile");
    let evil = "</script><script>document.title=1</script><img src=x onerror=document.title=2>";
    let tare = env!("CARGO_BIN_EXE_tare");
    let toml = format!(
        "name = '{evil}'\n[load]\n[stop]\nrounds = 2\n[slices]\ncycles = 2\nwindow = \"20ms\"\n\
         [server.web]\ncommand = \"exec {tare} target --listen 127.0.0.1:{{port}}\"\n\
         [[variant]]\nname = \"plain\"\nserver = \"web\"\nbaseline = true\n\
         [[variant]]\nname = '{evil}'\nserver = \"web\"\n"
    );
    let experiment = desk.file("evil.toml", &toml);
    let page = desk.folder.file("run.html");
    desk.tare(&["run", str(&experiment), "-q", "--html", str(&page)]).measured();
    let browser = Browser::start(&desk.folder.0);
    looks_right(&browser, &page, 4);
    assert_eq!(browser.run("return [document.title, document.images.length]"), json!([evil, 0]));
}

#[test]
fn pages_of_sweeps_pairs_and_imports_are_whole() {
    let desk = Desk::new("browser-others");
    let browser = Browser::start(&desk.folder.0);
    let tare = env!("CARGO_BIN_EXE_tare");
    let toml = format!(
        "name = \"Delay by connections\"\n[load]\n[stop]\nrounds = 3\n[slices]\ncycles = 2\nwindow = \"20ms\"\n\
         [sweep]\nconnections = [1, 4, 16]\n\
         [server.plain]\ncommand = \"exec {tare} target --listen 127.0.0.1:{{port}}\"\n\
         [server.late]\ncommand = \"exec {tare} target --listen 127.0.0.1:{{port}} --delay 200us\"\n\
         [[variant]]\nname = \"plain\"\nserver = \"plain\"\nbaseline = true\n\
         [[variant]]\nname = \"late\"\nserver = \"late\"\n"
    );
    let experiment = desk.file("sweep.toml", &toml);
    let page = |name: &str| desk.folder.file(name);
    let sweep = page("sweep.html");
    desk.tare(&["run", str(&experiment), "-q", "--html", str(&sweep)]).measured();
    // The curve, and a forest for each of three values.
    looks_right(&browser, &sweep, 4);
    let again = desk.tare(&["report", "1-3", "--format", "html"]).success().stdout;
    assert_eq!(again, std::fs::read_to_string(&sweep).unwrap(), "the same bytes from the store");
    let form = |form: &str| desk.tare(&["report", "1-3", "--format", form]).success().stdout;
    let fortio = form("fortio-csv");
    assert!(
        fortio.lines().count() == 7 && fortio.contains("\"late, connections 16\",16,"),
        "{fortio}"
    );
    let open = form("openmetrics");
    let of_value =
        "tare_rounds{run=\"3\",experiment=\"Delay by connections\",connections=\"16\"} 3";
    assert!(open.contains(of_value) && open.matches("# TYPE tare_rounds gauge").count() == 1);
    desk.tare(&["report", "1-4"]).fails(2, "there is no run 4");
    let other = toml
        .replace("connections = [1, 4, 16]", "threads = [1]")
        .replace("rounds = 3", "rounds = 1");
    desk.tare(&["run", str(&desk.file("other.toml", &other)), "-q"]).measured();
    desk.tare(&["report", "1-4"]).fails(2, "runs 1 and 4 are not of one sweep");
    desk.tare(&["report", "3-1"]).fails(2, "RUN 3-1: the first run and the last");
    desk.tare(&["report", "1-3", "--fail-if", "x: p50 > 5%"]).fails(2, "gates are about what is");
    let pair = page("pair.html");
    desk.tare(&["report", "1", "2", "--html", str(&pair)]).success();
    looks_right(&browser, &pair, 2);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/evidence");
    for (name, pictures) in [("filters.json", 2), ("confidential-vm.md", 0), ("rates.md", 0)] {
        let import = page("import.html");
        let source = root.join(name);
        desk.tare(&["import", str(&source), "--dry-run", "--html", str(&import)]).success();
        looks_right(&browser, &import, pictures);
    }
}

#[test]
fn the_browser_leaves_nothing_behind() {
    let desk = Desk::new("browser-gone");
    let profile = desk.folder.file("profile");
    let processes = || {
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        let profile = profile.to_str().unwrap();
        lines.filter(|line| String::from_utf8_lossy(line).contains(profile)).count()
    };
    let browser = Browser::start(&desk.folder.0);
    assert!(processes() > 0);
    drop(browser);
    until("its processes are gone", || processes() == 0);
}

/// Pictures for the README: the beginning of a page, at both widths and in both themes.
#[test]
#[ignore = "writes pictures of $TARE_PAGE into $TARE_PICTURES: make report-pictures"]
fn report_pictures() {
    let page = std::path::PathBuf::from(std::env::var_os("TARE_PAGE").unwrap());
    let folder = std::path::PathBuf::from(std::env::var_os("TARE_PICTURES").unwrap());
    std::fs::create_dir_all(&folder).unwrap();
    let desk = Desk::new("browser-pictures");
    let browser = Browser::start(&desk.folder.0);
    // Up to the end of a section: the latencies, or the table.
    for (width, sections) in [(1600, 4), (400, 3)] {
        for (theme, name) in [(Theme::Light, "light"), (Theme::Dark, "dark")] {
            browser.look(width, theme);
            browser.open(&page);
            let picture = browser.picture(width, sections);
            std::fs::write(folder.join(format!("report-{width}-{name}.png")), picture).unwrap();
        }
    }
}
