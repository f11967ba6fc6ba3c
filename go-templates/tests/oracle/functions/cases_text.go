package main

var builtinCases = []string{
	`{{ len .uid }}`, `{{ len "日本" }}`, `{{ len (list 1 2) }}`, `{{ len (dict "a" 1) }}`, `{{ len 3 }}`, `{{ len (first (list)) }}`, `{{ len true }}`,
	`{{ index (list "a" "b") 1 }}`, `{{ index (list "a" "b") 2 }}`, `{{ index (list "a" "b") 3 }}`, `{{ index (list "a") -1 }}`, `{{ index (list "a") "x" }}`,
	`{{ index . "uid" }}`, `{{ index . "missing" }}`, `{{ index . "missing" | default "d" }}`, `{{ index . 1 }}`, `{{ index "abc" 1 }}`, `{{ index "abc" 3 }}`, `{{ index "abc" 4 }}`,
	`{{ index (dict "a" (list 1 (dict "b" "deep"))) "a" 1 "b" }}`, `{{ index (dict) "a" "b" }}`, `{{ index 3 1 }}`, `{{ index (split "," "a,b") "_1" }}`, `{{ index (split "," "a,b") "_9" }}x`,
	`{{ index (list 1 2) nil }}`, `{{ index (dict "a" 1) nil }}`, `{{ index (first (list)) 1 }}`, `{{ index (list 1.5) 0.0 }}`, `{{ index .list 0 | printf "%c" }}`, `{{ index (list 1) }}`,
	`{{ print "a" "b" 1 2 "c" }}`, `{{ print 1 2 }}`, `{{ print }}x`, `{{ print nil }}`, `{{ print (list 1 "a" nil) (dict "k" nil) }}`, `{{ print 1e6 1e21 0.1 1e-7 }}`, `{{ print 4290981947.53515625 84060594719815.125 }} {{ toJson 84060594719815.125 }}`,
	`{{ println "a" 1 }}`, `{{ println }}`, `{{ println nil true }}`,
	`{{ printf "%s-app" .uid }}`, `{{ .uid | printf "%s-%s" "x" }}`, `{{ printf 3 }}`, `{{ printf }}`,
	`{{ html .html }}`, `{{ html 1 "<" }}`, `{{ html nil }}`, `{{ html (list "<a>") }}`, `{{ "a\x00b" | html }}`, `{{ html }}`,
	`{{ js .html }}`, `{{ js "a\\b\n\x01é\u2028\xff=" }}`, `{{ js nil }}`,
	`{{ urlquery .url }}`, `{{ urlquery "a b+c/ü~_.-" 1 }}`, `{{ urlquery "\xff" }}`,
	`{{ not .empty }}`, `{{ not true }}`, `{{ not (list) }}`, `{{ not (dict "a" 1) }}`, `{{ not 0.0 }}`,
	`{{ if and .uid (eq .plan "enterprise") }}both{{ end }}`, `{{ or .empty "other" }}`, `{{ len }}`, `{{ not 1 2 }}`, `{{ index }}`,
	`{{ . | len | printf "%d" }}`, `{{ list nil "a" }}`, `{{ dict "b" 1 "a" (dict "z" true) }}`, `{{ first (list) }}`, `{{ list (list) (dict) }}`,
	`{{ call .uid }}`, `{{ len (get (dict "a" nil) "a") }}`, `{{ len (index (dict) "z") }}`, `{{ not nil }}`, `{{ not (first (list)) }}`,
}

var printfCases = []string{
	`{{ printf "%v %v %v %v %v" 1 "a" true 1.5 nil }}`, `{{ printf "%d" 42 }}`, `{{ printf "%5d|%-5d|%05d|%+d|% d" 42 42 42 42 42 }}`, `{{ printf "%05d|%+05d|% 05d" -42 42 42 }}`,
	`{{ printf "%x %X %#x %#X %o %#o %O %b %#b" 255 255 255 255 8 8 8 5 5 }}`, `{{ printf "%x %o" -255 -8 }}`, `{{ printf "%c %c %q %U %#U" 65 128512 65 65 128512 }}`, `{{ printf "%q %+q" 233 233 }}`, `{{ printf "%c %q %U" -1 -1 -1 }}`,
	`{{ printf "%8.3d|%-8.3d|%08.3d|%.0d|%.0d" 7 7 7 0 1 }}`, `{{ printf "%s|%10s|%-10s|%.2s|%5.1s" "abc" "abc" "abc" "abc" "日本" }}`, `{{ printf "%05s|%-05s" "ab" "ab" }}`,
	`{{ printf "%q|%#q|%+q|%10q" "a\"b\n" "abc" "é" "x" }}`, "{{ printf \"%#q %#q\" \"a`b\" \"tab\\t\" }}", `{{ printf "%x|%X|% x|%#x|%# x|%.2x|%10x|%-10x|" "hello" "hello" "abc" "abc" "abc" "abc" "ab" "ab" }}`, `{{ printf "%x|%5x|" "" "" }}`,
	`{{ printf "%t %v %5t|%-7t|" true false true false }}`, `{{ printf "%f %.2f %8.2f %-8.2f| %08.2f %+.1f % .1f" 3.14159 3.14159 3.14159 3.14159 3.14159 3.14159 3.14159 }}`,
	`{{ printf "%e %E %.2e %g %G %.3g %g %g" 1234.5678 1234.5678 1234.5678 1234.5678 1e-10 1234.5678 1e6 1e20 }}`, `{{ printf "%v %v %v %v %v" 1e6 123456.0 1234567.0 0.0001 0.00001 }}`,
	`{{ printf "%g %g %.3g %.10g %#g %#.3g %#v %#v" 100000.0 1000000.0 1000000.0 1000000.0 1.0 1.0 1.0 1e6 }}`, `{{ printf "%6.2f%%|%+v|%F" 99.5 1.5 2.5 }}`, `{{ printf "%b %x %X %.3x %.0x" 1.5 1.5 3.75 1.1 1.5 }}`, `{{ printf "%x %x %.1x %x" 0.0 1e-320 1.96875 -2.5 }}`,
	`{{ printf "%.0f %.0f %.0f %.0f %.1f %.1f" 0.5 1.5 2.5 -0.5 0.25 0.35 }}`, `{{ printf "%.30f" 0.1 }}`, `{{ printf "%.3f %5.0f|" 2.0005 1e3 }}`, `{{ printf "%#.3x %#e %#.0f %#.0e" 1.5 1.5 1.0 1.0 }}`,
	`{{ printf "%d" "a" }}`, `{{ printf "%s" 1 }}`, `{{ printf "%d" 1.5 }}`, `{{ printf "%t" "x" }}`, `{{ printf "%s %d %x" nil nil nil }}`, `{{ printf "%z %!" 1 }}`, `{{ printf "%y" (list 1) }}`, `{{ printf "%w" "e" }}`, `{{ printf "%w" (list "e") }}`, `{{ printf "%5d" "ab" }}`,
	`{{ printf "%s %s" "a" }}`, `{{ printf "%s" "a" "b" 3 }}`, `{{ printf "%s" "a" nil }}`, `{{ printf "a" (list 1) (dict "k" "v") }}`, `{{ printf "%" }}`, `{{ printf "100%" }}`, `{{ printf "%%|%5%" }}`, `{{ printf "%-" }}`,
	`{{ printf "%[2]s %[1]s" "a" "b" }}`, `{{ printf "%[3]s" "a" }}`, `{{ printf "%[x]s" "a" }}`, `{{ printf "%[1]s %s" "a" "b" }}`, `{{ printf "%[2]*[1]d|" 7 5 }}`, `{{ printf "%*d|%-*d|" 5 1 5 1 }}`, `{{ printf "%*d" "a" 1 }}`, `{{ printf "%.*f" 2 3.14159 }}`, `{{ printf "%.*f" -1 3.5 }}`, `{{ printf "%*d|" -5 1 }}`, `{{ printf "%[1]" "a" }}`, `{{ printf "%[" "a" }}`, `{{ printf "%[1]5d" 3 }}`, `{{ printf "%.[1]5d" 3 }}`, `{{ printf "%[0]d" 1 }}`,
	`{{ printf "%T %T %T %T %T %T %T" 1 "a" 1.5 true nil (list 1) (dict) }}`, `{{ printf "%T %T %T %T" (add 1 2) (splitList "," "a") (until 2) (split "," "a") }}`, `{{ printf "%10T|%-8T|" 1 "a" }}`, `{{ printf "%T" (index "abc" 0) }}`, `{{ printf "%T" (chunk 1 (list 1)) }}`,
	`{{ printf "%v %+v %#v" (list 1 "a" nil) (list 1 "a" nil) (list 1 "a" nil) }}`, `{{ printf "%v %+v %#v" (dict "a" 1 "b" (list)) (dict "a" "x") (dict "a" "x" "b" nil) }}`, `{{ printf "%#v %#v %#v %#v" 1 "a" true 1.5 }}`, `{{ printf "%#v %#v %#v" (splitList "," "a,b") (until 2) (split "," "a") }}`, `{{ printf "%#v %#v" (index "abc" 0) (add 1 2) }}`, `{{ printf "%#v %v" (rest (list)) (rest (list)) }}`,
	`{{ printf "%s" (list "a" "b") }}`, `{{ printf "%q" (list "a" "b") }}`, `{{ printf "%d" (list 1 2) }}`, `{{ printf "%d" (list "a" 1) }}`, `{{ printf "%x" (list "a" 255) }}`, `{{ printf "%3d|" (list 1 2) }}`, `{{ printf "%s" (dict "a" "b") }}`, `{{ printf "%d" (dict "a" 1) }}`, `{{ printf "%5s|" (dict "a" "b") }}`, `{{ printf "%s" (list nil 1) }}`, `{{ printf "%d" (list nil) }}`, `{{ printf "%#v" (list (list 1) (dict "a" (list))) }}`,
	`{{ printf "%6v|%-6v|%06v" "ab" 12 12 }}`, `{{ printf "%v|%5v|" nil nil }}`, `{{ printf "%+d %+v %+q" 1 1 "ü" }}`, `{{ printf "%U %#U %8U| %.6U" 8364 8364 8364 8364 }}`, `{{ printf "%s" "\xff\xfe" | printf "%q" }}`, `{{ printf "日本 %s" "x" }}`, `{{ printf "%世" 1 }}`, `{{ printf "%\xff" 1 }}`,
	`{{ printf "%100000001d" 1 }}`, `{{ printf "%.100000001d" 1 }}`, `{{ printf "%1001d" 1 | len }}`, `{{ printf "%*d" 10000000 1 }}`, `{{ printf "%-010d|%- 5d|%+ d" 1 2 3 }}`, `{{ printf "%+.3e|%+08.2f|%-08.2f|" 12345.678 3.14159 3.14159 }}`, `{{ printf "%+v" (dict "a" 1) }}`, `{{ printf "%x %X" (list "hi" "yo") "hi" }}`, `{{ printf "%v %d" (index "a" 0) (index "a" 0) }}`, `{{ printf "%#x %#o %x" (index "a" 0) (index "a" 0) (index "a" 0) }}`, `{{ printf "% x % X %# x" 255 255 255 }}`, `{{ printf "%#08x|%#8x|%-#8x|%+#x" 255 255 255 255 }}`, `{{ printf "%#O %#b %08b" 8 5 5 }}`, `{{ printf "%v" 1.0 }}`, `{{ printf "%v %v" 100000000000000000000.0 1e100 }}`, `{{ printf "%5.1q|%.3q" "abc" "日本語x" }}`, `{{ printf "%t" nil }}`, `{{ printf "%p" "a" }}`, `{{ printf "%e %f %g" 0.0 0.0 0.0 }}`, `{{ printf "%G %E" 1e-7 1e-7 }}`, `{{ printf "%.3v|%.3v|%8.3v|" 3.14159 "abcdef" "abcdef" }}`,
}

var compareCases = []string{
	`{{ eq 1 1 }}{{ eq 1 2 }}{{ eq "a" "a" }}{{ eq true true }}{{ eq 1.5 1.5 }}`, `{{ eq .plan "free" "enterprise" }}`, `{{ eq 1 1.0 }}`, `{{ eq 1 "1" }}`, `{{ eq 1 true }}`, `{{ eq (add 1 2) 3 }}`, `{{ eq (index "abc" 0) 97 }}`, `{{ eq 97 (index "abc" 0) }}`, `{{ eq (list 1) (list 1) }}`, `{{ eq (list 1) "a" }}`, `{{ eq (dict) (list) }}`, `{{ eq (list) nil }}`, `{{ eq (rest (list)) nil }}`, `{{ eq nil nil }}`, `{{ eq "a" nil }}`, `{{ eq nil 1 }}`, `{{ eq 1 }}`, `{{ eq }}`, `{{ eq (first (list)) nil }}`, `{{ eq (dict "a" "x") (dict "a" "x") }}`, `{{ eq 1 "a" 1 }}`,
	`{{ ne 1 2 }}{{ ne "a" "a" }}`, `{{ ne 1 "a" }}`, `{{ ne 1 2 3 }}`, `{{ ne nil "a" }}`,
	`{{ lt 1 2 }}{{ lt 2 1 }}{{ lt "a" "b" }}{{ lt 1.5 2.5 }}`, `{{ lt 1 "a" }}`, `{{ lt true false }}`, `{{ lt (list) (list) }}`, `{{ lt nil 1 }}`, `{{ lt (index "a" 0) 98 }}{{ lt -1 (index "a" 0) }}{{ lt 98 (index "a" 0) }}`,
	`{{ le 1 1 }}{{ le 2 1 }}{{ le 1 2 }}`, `{{ le 1 1.0 }}`, `{{ gt 2 1 }}{{ gt 1 1 }}`, `{{ gt "b" "a" }}`, `{{ gt 1 "a" }}`, `{{ ge 1 1 }}{{ ge 0 1 }}`, `{{ ge true true }}`, `{{ gt (len .uid) 3 }}`, `{{ lt .n "6" }}`, `{{ le "a" nil }}`,
}

var stringsCases = []string{
	`[{{ trim "  a b \t\n" }}]`, `[{{ trim "\u00a0x\u2003" }}]`, `[{{ trim "" }}]`, `{{ trim 1 }}`, `[{{ trim "\xff a \xff" | quote }}]`,
	`{{ trimAll "-x" "--x-a-b-x-" }}`, `{{ trimAll "" "abc" }}`, `{{ trimAll "é" "éaé" }}`, `[{{ trimall "a" "aaa" }}]`, `{{ "$5.00" | trimAll "$" }}`, `{{ trimAll "\xff" "\xffa\xff" }}`,
	`{{ trimPrefix "ac" .uid }}`, `{{ trimPrefix "zz" .uid }}`, `{{ trimSuffix "-web" .uid }}`, `{{ trimSuffix "" .uid }}`, `{{ trimSuffix nil .uid }}`,
	`{{ nospace " a b\tc\n" }}`, `{{ nospace "é à" }}`, `{{ nospace "éà" }}`, `{{ nospace "" }}`,
	`{{ trunc 4 .uid }}`, `{{ trunc -3 .uid }}`, `{{ trunc 100 .uid }}`, `{{ trunc -100 .uid }}`, `{{ trunc -8 .uid }}`, `[{{ trunc 0 .uid }}]`, `{{ trunc 1 "é" }}`, `{{ trunc "a" "b" }}`, `{{ .uid | trunc 2 | upper }}`,
	`{{ substr 0 3 .uid }}`, `{{ substr 2 -1 .uid }}`, `{{ substr -1 3 .uid }}`, `{{ substr 2 100 .uid }}`, `{{ substr 5 2 .uid }}`, `{{ substr -1 -1 .uid }}`, `{{ substr -1 100 .uid }}`, `{{ substr 100 -1 .uid }}`, `{{ substr 9 8 .uid }}`,
	`{{ abbrev 8 .text }}`, `{{ abbrev 3 .text }}`, `{{ abbrev 100 .text }}`, `{{ abbrev 4 .text }}`, `{{ abbrev 5 "" }}`, `{{ abbrevboth 5 10 .text }}`, `{{ abbrevboth 10 9 .text }}`, `{{ abbrevboth 15 10 .text }}`, `{{ abbrevboth 4 6 .text }}`, `{{ abbrevboth -2 5 .text }}`, `{{ abbrevboth 100 10 .text }}`, `{{ abbrevboth 0 5 .text }}`, `{{ abbrevboth 5 7 "1234 56789" }}`, `{{ abbrevboth 6 8 .text }}`, `{{ abbrevboth 7 12 .text }}`,
	`{{ initials "First Try" }}`, `{{ initials "  a  b\tc" }}`, `{{ initials "" }}`, `{{ initials "élan vital" }}`,
	`{{ repeat 3 "ab" }}`, `[{{ repeat 0 "ab" }}]`, `{{ repeat -1 "ab" }}`, `{{ "-" | repeat 5 }}`, `{{ repeat "3" "a" }}`,
	`{{ .uid | replace "-" "_" }}`, `{{ replace "" "." "abc" }}`, `{{ replace "a" "" "banana" }}`, `{{ replace "aa" "b" "aaaaa" }}`, `{{ replace "x" "x" "x" }}`, `{{ replace "" "." "日\xff" | quote }}`, `{{ replace 1 2 "a" }}`, `{{ replace "" "-" "" }}`,
	`{{ contains "me" .uid }}{{ contains "" "" }}{{ contains "x" "" }}`, `{{ contains 1 .uid }}`, `{{ hasPrefix "ac" .uid }}{{ hasPrefix "b" .uid }}{{ hasPrefix "" "" }}`, `{{ hasSuffix "web" .uid }}{{ hasSuffix "b" "" }}`, `{{ hasPrefix nil "a" }}`,
	`{{ plural "one anchovy" "many anchovies" 1 }}`, `{{ len (list 1 2) | plural "item" "items" }}`, `{{ plural "a" "b" "c" }}`, `{{ plural "a" "b" 0 }}`,
}

var caseCases = []string{
	`{{ upper .unicode }}`, `{{ lower .unicode }}`, `{{ upper "ß\xffa" }}`, `{{ upper 1 }}`, `{{ lower "ABC" }}`, `{{ lower "ÀÉ" }}`, `{{ upper "ᾀ ŉ ﬁ" }}`, `{{ lower "ΣΑΣ" }}`,
	`{{ title .text }}`, `{{ title "hello_world foo-bar a.b ǆx" }}`, `{{ title "o'neil 1st" }}`, `{{ title "" }}`, `{{ title "\xffa b" }}`, `{{ "ენა" | title }}`,
	`{{ untitle "Hello World ABC" }}`, `{{ untitle "  ÀB" }}`, `{{ untitle "" }}`,
	`{{ swapcase "This Is A.Test" }}`, `{{ swapcase "ab cd ǅ ß" }}`, `{{ swapcase "a1b c" }}`,
	`{{ snakecase "FirstName" }}`, `{{ snakecase "HTTPServer" }}`, `{{ snakecase "NoHTTPS" }}`, `{{ snakecase "GO PATH" }}`, `{{ snakecase "http2xx" }}`, `{{ snakecase "HTTP20xOK" }}`, `{{ snakecase "Duration2m3s" }}`, `{{ snakecase "Bld4Floor3rd" }}`, `{{ snakecase "" }}`, `{{ snakecase "a" }}`, `{{ snakecase "_a__B-c" }}`, `{{ snakecase "日本Go語" }}`, `{{ snakecase "a.b,C!D" }}`, `{{ snakecase "abc123" }}`, `{{ snakecase "123abc" }}`, `{{ snakecase "abc123DEF" }}`, `{{ snakecase "ABC123" }}`, `{{ snakecase "aB" }}`, `{{ snakecase "12AB34cd" }}`, `{{ snakecase "x€y$Z" }}`, `{{ snakecase "A" }}`, `{{ snakecase "--A--" }}`, `{{ snakecase "\xffAb\xfeC" | quote }}`, `{{ snakecase "\xff" | quote }}`, `{{ snakecase "D\xffDxc" | quote }}`, `{{ snakecase "B\xffD\xffa" | quote }}`, `{{ snakecase "1 2" }}`, `{{ snakecase "a1B2c3" }}`, `{{ snakecase "IDs2Go" }}`,
	`{{ kebabcase "FirstName" }}`, `{{ kebabcase "HTTPServer v2" }}`, `{{ kebabcase .unicode }}`,
	`{{ camelcase "some_words" }}`, `{{ camelcase "http_server" }}`, `{{ camelcase "_complex__case_" }}`, `{{ camelcase "some words-here" }}`, `{{ camelcase "" }}`, `{{ camelcase "a" }}`, `{{ camelcase "--" }}`, `{{ camelcase "-" }}`, `{{ camelcase "ABC_DEF" }}`, `{{ camelcase "\xffab" }}`, `{{ camelcase 1 }}`, `{{ camelcase "a_" }}`, `{{ camelcase "__a b__" }}`,
}

var quotingCases = []string{
	`{{ quote "a\"b\\" }}`, `{{ quote .lines }}`, `{{ quote 1 true nil "x" }}`, `{{ quote }}`, `{{ quote nil }}`, `{{ quote (list "a" 1) }}`, `{{ quote "\xffé\u200b\u2028" }}`, `{{ .region | default "eu" | quote }}`, `{{ index . "region" | default "eu" | quote }}`, `{{ quote "\x00\x7f\a\v😀" }}`, `{{ quote 1.5 1e6 }}`,
	`{{ squote "it's" }}`, `{{ squote 1 nil "b" }}`, `{{ squote }}`, `{{ squote (dict "a" 1) }}`,
	`{{ cat "a" 1 nil true "b" }}`, `{{ cat }}`, `{{ cat nil }}`, `{{ cat "a%sb" "c" }}`, `{{ cat "  x " "" "y" }}`, `{{ cat (list 1 2) 1.5 }}`,
	`{{ indent 2 .lines }}`, `{{ indent 0 "a" }}`, `[{{ indent 3 "" }}]`, `{{ indent -1 "a" }}`, `{{ indent "2" "a" }}`, `{{ nindent 2 .lines }}`, `{{ nindent -1 "a" }}`, `{{ nindent 1 "a\n" }}`,
	`{{ toString 1 }}{{ toString nil }}{{ toString true }}{{ toString 1.50 }}{{ toString (list 1) }}`, `{{ toString "x" | upper }}`, `{{ toString (dict "a" 1) }}`, `{{ toString (index "a" 0) }}`,
	`{{ toStrings (list 1 "a" nil true) }}`, `{{ toStrings "a" }}`, `{{ toStrings nil }}`, `{{ toStrings (until 3) | join "," }}`, `{{ toStrings (splitList "," "a,b") | typeOf }}`, `{{ toStrings (dict "a" 1) }}`,
}

var splittingCases = []string{
	`{{ splitList "," .list }}`, `{{ splitList "," "" | len }}`, `{{ splitList "" "a日" | quote }}`, `{{ splitList "" "" | len }}`, `{{ splitList "--" "a--b---c" | quote }}`, `{{ splitList 1 "a" }}`, `{{ .image | default "x:1.0" }}`, `{{ "registry.example.com/web:1.0" | splitList ":" | last | replace "." "-" }}`, `{{ splitList "," "," | len }}`, `{{ splitList "" "\xffa" | quote }}`,
	`{{ (split "," .list)._1 }}`, `{{ split "," "a,b" }}`, `{{ (split "," "a")._3 }}`, `{{ split "" "ab" }}`, `{{ split "," "" }}`, `{{ $s := split "/" "a/b/c" }}{{ $s._0 }}-{{ $s._2 }}`, `{{ set (split "," "a") "x" 1 }}`, `{{ split "," (until 12 | join ",") }}`,
	`{{ splitn "," 2 .list }}`, `{{ splitn "," 0 .list }}`, `{{ splitn "," -1 .list }}`, `{{ splitn "," 1 .list }}`, `{{ splitn "" 2 "abc" }}`, `{{ splitn "" 1 "abc" }}`, `{{ splitn "," "2" "a" }}`,
	`{{ join "-" (list "a" 1 nil true) }}`, `{{ join "," .uid }}`, `[{{ join "," (list) }}]`, `[{{ join "," nil }}]`, `{{ join "," (splitList "" "abc") }}`, `{{ until 3 | join "+" }}`, `{{ join 1 (list "a") }}`, `{{ list "a" "b" | join "" }}`, `{{ join "," (dict "a" 1) }}`, `{{ join ", " (list (list 1 2) 1.5) }}`,
	`{{ sortAlpha (splitList "," .list) }}`, `{{ sortAlpha (list "b" 3 nil "a" 10) }}`, `{{ sortAlpha "b" }}`, `{{ sortAlpha nil }}`, `{{ $l := splitList "," .list }}{{ sortAlpha $l }}{{ $l }}`, `{{ $l := list "b" "a" }}{{ sortAlpha $l }}{{ $l }}`, `{{ sortAlpha (until 3) }}`, `{{ sortAlpha (list) | len }}`, `{{ dict "b" 1 "a" 2 | keys | sortAlpha | join "," }}`,
}

var wrappingCases = []string{
	`{{ wrap 10 .text }}`, `{{ wrap 5 .text }}`, `{{ wrap 0 "a b" }}`, `{{ wrap -3 "ab c" }}`, `{{ wrap 80 .text }}`, `{{ wrap 5 "" }}`, `{{ wrap 3 "abcdefgh ij" }}`, `{{ wrap 4 "    a   b   " }}`, `{{ wrap 1 "日本" }}`, `{{ wrap "5" "a" }}`,
	`{{ wrapWith 10 "\t" .text }}`, `{{ wrapWith 3 "|" "abcdefgh ij" }}`, `{{ wrapWith 5 "" .text }}`, `{{ wrapWith 0 "-" "abc" }}`, `{{ wrapWith 4 "--" "a bb ccc dddd eeeee" }}`,
}
