<?php
// request: GET {self}
// expect: STRASSE
header('Content-Type: text/plain; charset=utf-8');
echo mb_strtoupper('straße'), ' ', mb_strlen('héllo'), ' ', mb_substr('日本語', 1, 1), "\n";
echo (new NumberFormatter('de_DE', NumberFormatter::DECIMAL))->format(1234567.89), "\n";
echo (new Collator('sv'))->compare('ö', 'z'), ' ', Normalizer::normalize("e\u{301}"), "\n";
echo iconv('UTF-8', 'ISO-8859-1//TRANSLIT', 'é') === "\xe9" ? 'latin' : 'other';
