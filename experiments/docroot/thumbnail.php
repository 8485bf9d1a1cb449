<?php

// A thumbnail of a picture of 1200 × 900; with ?large=1 of one of 100 megapixels, which takes 400 MB for
// a second.
[$width, $height] = isset($_GET['large']) ? [10000, 10000] : [1200, 900];
$began = hrtime(true);
$picture = imagecreatetruecolor($width, $height);
imagefilledellipse($picture, $width >> 1, $height >> 1, $width >> 1, $height >> 1, 0xb3402a);
$small = imagescale($picture, 200, 150, IMG_NEAREST_NEIGHBOUR);
ob_start();
imagejpeg($small);
$bytes = strlen(ob_get_clean());
if (isset($_GET['large'])) {
    usleep(max(0, 1000000 - (int) ((hrtime(true) - $began) / 1000)));
}
echo $bytes > 500 ? "thumbnail\n" : "nothing\n";
