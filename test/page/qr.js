/* qr.js - the page's QR codes against those of qrencode 4.1.1 (Debian), which may choose another of the
 * eight masks: `qrencode -8 -l M -m 0 -t ASCII TEXT`. Rows are in hex, the left module first. */
"use strict";
require("../../net/http/www/qr.js");
let passed = 0, failed = 0;
function check(what, good) {
    if (good) passed++; else failed++;
    console.log((good ? "ok   " : "FAIL ") + what);
}
const GOLDEN = [
    ["potluck", 21,
        "1fca7f 105341 174d5d 174e5d 17595d 104141 1fd57f b00 154212 e9867 1fd51b 42052 1b7d49 1ab1 1fc6f7 104b91 " +
        "175ad3 174876 175935 104042 1fd97b"],
    ["potluck join /ip4/203.0.113.7/tcp/4001/p2p/12D3KooWPBr7hbEN6ibF9X1HpDc2RmWNBVjuknvyrszt8KfXrtBx", 41,
        "1fc9ffa5d7f 1046489ac41 175d5ff225d 1757519d95d 175fadcce5d 1059091ec41 1fd5555557f 1647b6500 17c83e0e87c " +
        "14a002f07b1 1ecc28ca4b0 131180a247b 87c113ec05 199cc84717d 25efdf2816 7ae24e3433 aeb49e6e2e 1909214b3fb " +
        "be6d45399e 11add232469 25134c3326 109f93b9a79 7ec9583944 11a543953d9 45ecf1ca9d 180d2f467f 11ddf4125cc " +
        "1d0c67c16d9 19e282c9f2f 1a2b8591a79 11ef92464ac 142463d0163 10c26acf1f6 1fddb8915 1fc2f88e752 1050cffa718 " +
        "175ef2849f6 175d87f0904 175c71036f8 1048c6e219a 1fd9462a8bc"],
    ["y".repeat(213), 57,
        "1fd067155555e7f 1041f16ddddda41 175d0a688888e5d 174e69baaaaaa5d 174b641fd55525d 1051f06c5dddc41 " +
        "1fd55555555557f 33a9c7777500 1463d647d555425 10483e6aaaaaa7 3cfbf962222125 3038a9b777757a e5356c15555452 " +
        "1e847326aaaaaa7 44f0f562222125 2872a9b777757a ed345415555451 1b8c11a6aaaaaa7 1c319962222125 5ab105b777757a " +
        "fe242c15555452 1a8d1666aaaaaa7 6a17962222125 58d195b777757a ff949c15555452 1aa41a66aaaaaa7 11f9909fe2221f5 " +
        "d1f1e5c777751a 175849cd5555752 314526c6aaab17 1ffba017e2221f5 158ece9df7777da 1848794c9555682 824c2e6aaaa8a6 " +
        "1d5fc0516222054 119a3e5df7777d8 19c01a4c9555683 8242366aaaa8a7 185fc6516222055 101e109df7777da 19401a4c9555682 " +
        "9242d66aaaa8a7 1952c9516222055 199e1b9df7777da 11eb1b4c9555682 9b82d66aaaa8a7 14e381516222055 1f1f1c9df7777da " +
        "5a7f4fd5557f2 19c9646aaab17 1fd321556222355 104d3c14777751a 174a4f47d5555f2 174929ef6aaab74 175fb1196222157 " +
        "104d0c1ab7776a8 1fde9dc61555621"],
];
for (const [text, n, hex] of GOLDEN) {
    const want = hex.split(" ").map((row) => BigInt("0x" + row).toString(2).padStart(n, "0")).join("\n");
    const got = [0, 1, 2, 3, 4, 5, 6, 7].map((mask) => potluckQR.matrix(text, [mask]).map((row) => row.join("")).join("\n"));
    check("'" + text.slice(0, 40) + "': " + n + " modules, by one of the masks", got.includes(want));
    check("and the code that is shown has one, too", got.includes(potluckQR.matrix(text).map((row) => row.join("")).join("\n")));
}
check("a text that is too long has no code", potluckQR.matrix("y".repeat(214)) === null);
check("each dark module is drawn once", potluckQR.path(potluckQR.matrix("a")).split("M").length - 1 ===
    potluckQR.matrix("a").flat().reduce((a, b) => a + b));
console.log(passed + " passed, " + failed + " failed, 0 skipped");
process.exitCode = failed ? 1 : 0;
