<?php
$hello = static function (): void {
    echo "Hello, World!\n";
};
while (frankenphp_handle_request($hello)) {
}
