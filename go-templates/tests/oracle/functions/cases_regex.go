package main

import "fmt"

// Patterns that Go refuses, each in its own words.
var refusedPatterns = []string{
	`(`, `)`, `a)`, `(()`, `[`, `[a`, `[]`, `[^]`, `[]a`, `[z-a]`, `[a-\d]`, `[\d-z]`, `[[:foo:]]`, `[[:^foo:]]`, `*`, `+a`, `|*`, `(*)`, `(|+)`, `^*`, `a**`, `a*+`, `a+?*`, `a??*`, `a{2}{3}`, `a{2}*`, `a{1001}`, `a{1,1001}`, `a{2,1}`, `a{9999999999}`, `(a{100}){11}`, `((a{10}){10}){11}`, `{2}`, `(?i)*`, `\`, `a\`, `\8`, `\1`, `\18`, `\x`, `\x4`, `\xg1`, `\x{}`, `\x{110000}`, `\x{12`, `\C`, `\Z`, `\G`, `\i`, `\é`, `[\b]`, `[\A]`, `\p`, `\pX`, `\p{`, `\p{Foo}`, `\p{}`, `[\p{Foo}]`, `(?P<n>a`, `(?P<n`, `(?P<>a)`, `(?P<n-m>a)`, `(?P=n)`, `(?<n`, `(?<`, `(?P<`, `(?`, `(?i`, `(?x)a`, `(?i-)a`, `(?-:a)`, `(?i--s:a)`, `(?=a)`, `(?!a)`, `(?<=a)`, `(?<!a)`, `(?>a)`, `(?#c)`, `a{,2}{`, `a{2}{`, `x{2}{2}?`,
}

// Patterns that are taken, each with a text in which it finds something, or not.
var takenPatterns = [][2]string{
	{``, `abc`}, {`b`, `abc`}, {`a|ab`, `ab`}, {`ab|a`, `ab`}, {`a*`, `baac`}, {`a+?`, `aaa`}, {`a??b`, `ab`}, {`(?U)a+`, `aaa`}, {`(?U)a+?`, `aaa`}, {`a{2}`, `aaaaa`}, {`a{2,}`, `aaaaa`}, {`a{2,3}?`, `aaaaa`}, {`a{0}`, `aa`}, {`a{,2}`, `aa{,2}`}, {`a{x}`, `a{x}`}, {`a{`, `a{`}, {`{`, `{`}, {`a{01}`, `a{01}`}, {`(a{1000}){0}`, `a`}, {`(a{10}){100}`, `a`},
	{`^a`, "b\na"}, {`(?m)^a`, "b\na"}, {`a$`, "a\nb"}, {`(?m)a$`, "a\nb"}, {`\Aa`, `aa`}, {`a\z`, `aa`}, {`a.b`, "a\nb"}, {`(?s)a.b`, "a\nb"}, {`(?s:a.)b.`, "a\nb\n"}, {`(?s)(?-s).`, "\n"}, {`(?i)straSSE`, `Strasse`}, {`(?i)ß`, `ẞ`}, {`(?i)k`, "\u212a"}, {`(?i)[k-l]`, "\u212a"}, {`(?i)[^k]`, "\u212a"}, {`(?i)\w`, "\u017f"}, {`\w`, "\u017f"}, {`(?i)\W`, "\u017f"}, {`(?i:a)b`, `Ab`}, {`(?i)(?-i)a`, `A`}, {`((?i)a)b`, `AB`}, {`a(?i)b|c`, `C`}, {`(?ims)a.b$`, "A\nb\nc"},
	{`\d+`, `٣4`}, {`\D`, `4٣`}, {`\s+`, "a\v\u00a0\t\n b"}, {`\S`, " \v"}, {`\w+`, `é_a1é`}, {`\W+`, `aéb`}, {`\bé`, `é`}, {`\ba`, `éa`}, {`\Ba`, `ba`}, {`\B`, `é`}, {`\b`, `aé`}, {`[\d\s]+`, `1 2`}, {`[^\d]+`, `1a2`}, {`[\W]+`, `a-é`}, {`[\D5]+`, `a5é6`},
	{`[[:alpha:]]+`, `aé`}, {`[[:^alpha:]]+`, `a1é`}, {`[[:word:]-]+`, `a-_`}, {`[[:space:]]`, "\v"}, {`[[:punct:]]+`, `a!~`}, {`[[:xdigit:]]+`, `xFg`}, {`(?i)[[:upper:]]+`, `ab`}, {`[:alpha:]+`, `la:p`}, {`[[:alpha:]`, `[:`}, {`[[]`, `[`}, {`[a[]`, `[`}, {`[a&&b]+`, `a&b`}, {`[a--b]+`, `a`}, {`[]a]+`, `]a`}, {`[^]a]`, `]b`}, {`[a-]+`, `a-`}, {`[-a]+`, `a-`}, {`[a\-z]+`, `b-z`}, {`[a-c-e]+`, `b-e`}, {`[\n\t]`, "\t"}, {`[\]]`, `]`}, {`[\x41-\x{43}]+`, `ABCD`}, {`[^a]`, "\n"}, {`[~~]`, `~`}, {`[#]`, `#`},
	{`\pL+`, `aé1`}, {`\PL+`, `a12`}, {`\p{Greek}+`, `aαβ`}, {`\p{^Greek}`, `αb`}, {`\P{^Greek}`, `bα`}, {`\p{Lu}`, `aB`}, {`(?i)\p{Lu}`, `a`}, {`[\p{L}\d]+`, `é1-`}, {`[^\pL]+`, `a--`}, {`\p{Any}`, `a`}, {`\pN`, `٣`}, {`\p{Han}+`, `日本語x`},
	{`\a\f\v\r`, "\a\f\v\r"}, {`\101`, `A`}, {`\0`, "\x00"}, {`\07a`, "\aa"}, {`\12`, "\n"}, {`\123`, `S`}, {`\1234`, `S4`}, {`\x41`, `A`}, {`\x{1F600}`, `😀`}, {`\x{D800}`, `x`}, {`\.\-\_`, `.-_`}, {`\Qa.b\E+`, `a.bb`}, {`\Q`, `a`}, {`\Qa\`, `a\`}, {`\Q\E*`, `a`}, {`a\Q\E*`, `aa`}, {`a*\Q\E?`, `aa`}, {`a(?i)*`, `aaA`}, {`\/`, `/`}, {`#a b`, `#a b`},
	{`(a)(b)?`, `a`}, {`(?P<n>a)`, `a`}, {`(?<n>a)`, `a`}, {`(?P<n>a)(?P<n>b)`, `ab`}, {`(?P<1>a)`, `a`}, {`()`, `a`}, {`(|a)*`, `aa`}, {`(|a)+`, `aa`}, {`(a|b)*?c`, `abc`}, {`(a*)*`, `b`}, {`(a*)+`, `b`}, {`(a|)+`, `aab`}, {`x*`, ``}, {`a||b`, `b`}, {`(?:a|b)|c`, `c`}, {`^$`, ``}, {`日.`, `日本`}, {`.`, `日`}, {`..`, "日\xff"}, {`a.c`, "a\xffc"}, {`\x{FFFD}`, "a\xff"}, {`[^a]+`, "a\xff\xe6\x97"}, {`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`, `acme-web`}, {`(a+)+$`, `aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab`}, {`\bfoo\b`, `a foo b`}, {`^(\w+)@(\w+)\.com$`, `me@example.com`},
}

var regexCases = append(
	patternCases(),
	`{{ regexMatch "^acme-[a-z]+$" .uid }}`, `{{ regexMatch "(" "" }}`, `{{ regexMatch 1 "" }}`, `{{ mustRegexMatch "e.w" .uid }}`, `{{ regexMatch "\xff" "" }}`, `{{ mustRegexMatch "a\xffb" "" }}`, `{{ regexFind "a\xff" "" }}`, "{{ regexFind \"`(\" \"\" }}", `{{ regexFind "(\n" "" }}`,
	`{{ regexFind "[0-9]+" "a12b3" }}`, `[{{ regexFind "x" .uid }}]`, `{{ regexFind "a" 1 }}`, `{{ mustRegexFind "[a-z]+$" .uid }}`, `{{ mustRegexFind "a{2}{3}" .uid }}`,
	`{{ regexFindAll "[aeiou]" .text -1 }}`, `{{ regexFindAll "[aeiou]" .text 2 }}`, `{{ regexFindAll "[aeiou]" .text 0 | toJson }}`, `{{ regexFindAll "x" "abc" -1 | toJson }}`, `{{ regexFindAll "a*" "baac" -1 | quote }}`, `{{ regexFindAll "" "日b" -1 | len }}`, `{{ regexFindAll "." "日\xff" -1 | quote }}`, `{{ regexFindAll "" "\xff\xe6" -1 | len }}`, `{{ regexFindAll "(" "" 1 }}`, `{{ regexFindAll "a" "a" "1" }}`, `{{ mustRegexFindAll "[a-c]" .list -1 | join "+" }}`, `{{ mustRegexFindAll "[a-c]" .list 1 | typeOf }}`, `{{ mustRegexFindAll "(" "" 1 }}`, `{{ mustRegexFindAll "x" "" -1 | toJson }}`, `{{ regexFindAll "\\b" "ab cd" -1 | len }}`, `{{ regexFindAll "a|" "aba" -1 | quote }}`,
	`{{ regexReplaceAll "a(x*)b" "-ab-axxb-" "${1}W" }}`, `{{ regexReplaceAll "a(x*)b" "-ab-axxb-" "$1W" }}`, `{{ regexReplaceAll "a(x*)b" "-ab-axxb-" "$1" }}`, `{{ regexReplaceAll "(?P<n>[a-z]+)-(?P<m>[a-z]+)" .uid "$m.${n}" }}`, `{{ regexReplaceAll "(a)|(b)" "ab" "<$1|$2|$3|$0>" }}`, `{{ regexReplaceAll "a" "banana" "$$" }}`, `{{ regexReplaceAll "a" "ba" "$" }}`, `{{ regexReplaceAll "a" "ba" "${" }}`, `{{ regexReplaceAll "a" "ba" "${a" }}`, `{{ regexReplaceAll "a" "ba" "$-${0}$ x" }}`, `{{ regexReplaceAll "(a)" "ba" "$01${01}${1x}$é." }}`, `{{ regexReplaceAll "" "abc" "-" }}`, `{{ regexReplaceAll "" "日\xff" "-" | quote }}`, `{{ regexReplaceAll "" "日本" "-$0" }}`, `{{ regexReplaceAll "a*" "baaac" "x" }}`, `{{ regexReplaceAll "x*" "" "y" }}`, `{{ regexReplaceAll "(?P<n>a)|(?P<n>b)" "ab" "[$n]" }}`, `{{ regexReplaceAll "(" "" "" }}`, `{{ regexReplaceAll "a" "" 1 }}`, `{{ mustRegexReplaceAll "[^a-z0-9-]+" "Acme Web_1" "-" }}`, `{{ mustRegexReplaceAll "(" "" "" }}`, `{{ regexReplaceAll "(a){0}b" "b" "[$1]" }}`, `{{ regexReplaceAll "(a*)+" "b" "[$1]" }}`, `{{ regexReplaceAll "(a|b)+" "abab" "[$1]" }}`, `{{ regexReplaceAll "\\.\\d+$" "1.2.3" "" }}`, `{{ regexReplaceAll "(?P<日>a)" "a" "$日" }}`, `{{ regexReplaceAll "\xff" "a" "b" }}`, `{{ regexReplaceAll "(a)" "a" "$1000000000$99999999999999999999" }}`, `{{ "a b  c" | printf "%s" | regexReplaceAll " +" "-" }}`,
	`{{ regexReplaceAllLiteral "a(x*)b" "-ab-axxb-" "${1}" }}`, `{{ regexReplaceAllLiteral "" "ab" "$" }}`, `{{ regexReplaceAllLiteral "[" "" "" }}`, `{{ regexReplaceAllLiteral "a" "b" nil }}`, `{{ mustRegexReplaceAllLiteral "a+" "baab" "$0" }}`, `{{ mustRegexReplaceAllLiteral "a**" "" "" }}`, `{{ mustRegexReplaceAllLiteral "." "\xffa" "x" }}`, `{{ regexReplaceAllLiteral "[^a]" "a\xff日" "x" }}`,
	`{{ regexSplit "[,;]" "a,b;c" -1 }}`, `{{ regexSplit "," "a,b,c" 2 | quote }}`, `{{ regexSplit "," "a,b" 0 | toJson }}`, `{{ regexSplit "," "" -1 | quote }}`, `{{ regexSplit "" "" -1 | toJson }}`, `{{ regexSplit "" "abc" -1 | quote }}`, `{{ regexSplit "" "abc" 2 | quote }}`, `{{ regexSplit "a*" "baac" -1 | quote }}`, `{{ regexSplit "," ",a," -1 | quote }}`, `{{ regexSplit "x" "a" -1 | quote }}`, `{{ regexSplit "," "a,b,c" 1 | quote }}`, `{{ regexSplit "^" "ab" -1 | quote }}`, `{{ regexSplit "$" "ab" -1 | quote }}`, `{{ regexSplit "(" "" 1 }}`, `{{ regexSplit "," "a" 1.5 }}`, `{{ mustRegexSplit "\\s+" .text -1 | last }}`, `{{ mustRegexSplit "a" "b" 0 | typeOf }}`, `{{ mustRegexSplit ")" "" 1 }}`, `{{ mustRegexSplit "" "日\xffa" -1 | quote }}`,
	`{{ regexQuoteMeta "a.b*c[1]{2}^$|()?+\\" }}`, `{{ regexQuoteMeta "" }}`, `{{ regexQuoteMeta "é-_ #\xff" | quote }}`, `{{ regexQuoteMeta 1 }}`, `{{ regexMatch (regexQuoteMeta "1.2") "1x2" }}`,
)

func patternCases() []string {
	var cases []string
	for _, pattern := range refusedPatterns {
		cases = append(cases, fmt.Sprintf("{{ mustRegexMatch %q \"\" }}", pattern))
	}
	for _, taken := range takenPatterns {
		cases = append(cases, fmt.Sprintf("{{ regexReplaceAll %q %q \"<$0|$1>\" | quote }}", taken[0], taken[1]))
	}
	return cases
}
