//! The words by which prose is read, in the languages of such notes.

use std::collections::HashSet;
use std::sync::LazyLock;

/// A list of words, asked of every word of a file.
pub type Words = LazyLock<HashSet<&'static str>>;

/// Words that a sentence begins with which leads to the next output.
pub static OPENERS: Words = LazyLock::new(|| {
    "\
     now then and next finally first here jetzt nun dann und erst puis ensuite maintenant et \
     ahora luego y primero agora depois e"
        .split(' ')
        .collect()
});

/// Behind these stands what an output is of.
pub static PREPOSITIONS: Words = LazyLock::new(|| {
    "\
     on in into inside with without for of from behind via through under within at auf mit \
     ohne bei unter über hinter dans sur avec sans pour en con sin para com sem em"
        .split(' ')
        .collect()
});

/// Words that belong to the name behind them: "without a sidecar", "second VM".
pub static LINKS: Words = LazyLock::new(|| {
    "\
     without no not behind via through over after before against using non w/o same other \
     another different first second third fourth fifth 1st 2nd 3rd 4th 5th last one two three \
     four five ohne kein keine nach vor hinter über andere anderen anderer erste ersten erster \
     zweite zweiten zweiter dritte dritten dritter sans après avant autre premier première \
     deuxième seconde troisième sin tras otra otro primera segunda segundo tercera sem após \
     outra outro primeiro terceira"
        .split(' ')
        .collect()
});

/// Where a sentence has nothing else to say, one of these makes it one more run of the same.
pub static AGAIN: Words = LazyLock::new(|| {
    "\
     again first 1st erster ersten premier première primera primeiro einmal once repeat \
     repeated repeating repetition repetitions rerun re-run second third fourth fifth 2nd 3rd \
     4th 5th next another more same nochmal nochmals erneut zweiter zweite dritter dritte \
     wieder wiederholung encore deuxième seconde troisième otra segunda tercera vez nuevo \
     vezes outra novamente terceira run runs iteration iterations attempt try trial lauf läufe \
     rodada essai corrida"
        .split(' ')
        .collect()
});

/// The same, in languages that are written without spaces.
pub const CJK_AGAIN: &str = "\
     第二次 第三次 第2次 第3次 再次 再测 再跑 重复 もう一度 回目 再度 再実行";

/// Phrases of those that tell no output from another.
pub const CJK_EMPTY: &str = "\
     ほぼ同じですね ほぼ同じ 同じもの 同じ 念のため 基本一致 第二天 测试结果 测试 结果 如下 下面 以下 输出 运行 第一次 第二次 第三次 第2次 第3次 再次 再测 再跑 \
     重复 一次 我们 然后 接着 现在 数据 性能 命令 执行 这是 是 的 在 上 中 里 为 和 一 結果 では での です 次 実行 もう一度 回目 再度 再実行 計測 の は \
     で を";

/// Words that tell no output from another: they lead to one, remark on it, or name its tool. In
/// groups: English function words, measuring, tools and metrics, remarks, German, French, Spanish,
/// Portuguese, others.
pub static EMPTY: Words = LazyLock::new(|| {
    [
        "\
     a an the this that these those it its it's he she we i you they our my your us me here \
     there where when while then now next and or but so if as at by in on of for from to into \
     with within inside is are was were be been being do does did done has have had can could \
     will would may might should let let's get gets got getting give gives gave given see seen \
     show shows showed shown look looks looked what which who how why all both each every some \
     any also too only just even still yet back about like",
        "\
     result results output outputs number numbers figure figures run runs ran running rerun \
     re-run test tests tested testing measure measured measurement measurements measuring \
     bench benchmark benchmarks benchmarked benchmarking try tried trial trials attempt \
     attempts iteration iterations repeat repeated repeating repetition repetitions time times \
     sample samples round rounds command commands log logs raw full summary data following \
     follows below above left right example tool tools report reports reported same again once \
     twice thrice first second third fourth fifth last final finally 1st 2nd 3rd 4th 5th one \
     two three four five six ten few several another other more less most least",
        "\
     wrk wrk2 ab hey oha k6 fortio h2load qperf iperf3 iperf unixbench apachebench \
     byte-unixbench load throughput latency latencies bandwidth req/s requests request per sec \
     rps qps performance score index mean avg average median p50 p90 p99 %",
        "\
     slower faster better worse higher lower similar similarly equal identical different \
     difference bit little much slightly quite very rather nearly almost roughly around \
     approximately stable noise noisy variance expected unexpected interesting surprising \
     surprisingly strange sure drops drop dropped loses lose lost gain gains increase \
     increases increased decrease decreases up down good bad fine ok okay clearly however well \
     thus therefore because since although though indeed actually consistent confirms confirm \
     confirmed check double-check compare compared comparison comparing sanity order yields \
     yield yielded produced produces printed prints says said told tells started start stops \
     ended took takes taken used use uses repeated warm-up warmup went goes go going come \
     comes came",
        "\
     das die der den dem des ein eine einer einem einen und oder aber so dann nun jetzt hier \
     da es ist sind war waren wird wurde im in am an auf aus bei mit von vom zu zum zur für \
     auch noch einmal nochmal nochmals erneut wieder zweiter zweite zweiten dritter dritte \
     dritten erster erste ersten lauf läufe messung messungen ergebnis ergebnisse ausgabe \
     werte gleiche gleichen gleich dasselbe dieselbe wir ich man wie folgt folgende folgendes \
     sieht ergibt ergab zeigt gemessen gelaufen test vergleich vergleichs dazu danach zuerst \
     zuletzt mal",
        "\
     le la les un une des du de d l et ou mais puis ensuite maintenant voici voilà ici c'est \
     est sont sur dans avec pour par au aux en résultat résultats sortie mesure mesures essai \
     essais même encore fois deuxième seconde troisième premier première nous on donne obtient",
        "\
     el los las unos unas y o pero luego ahora aquí es son en con para por del al resultado \
     resultados salida medida prueba pruebas mismo misma otra vez segunda segundo tercera \
     primera corrida nosotros da obtenemos",
        "\
     os um uma uns umas e mas depois agora aqui é são no na nos nas com do da dos das ao saída \
     teste testes medição mesma mesmo outra novamente rodada rodadas primeiro terceira temos \
     obtivemos",
        "\
     comment comments commented answer answers question questions edit update score accepted \
     seconds minutes sekunden minuten secondes segundos je jeweils chacun cada tl;dr btw fyi \
     e.g i.e etc vs versus ok",
    ]
    .into_iter()
    .flat_map(|group| group.split(' '))
    .collect()
});
