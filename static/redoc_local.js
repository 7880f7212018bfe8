/* ReDoc shows its maker's logo, fetched from its maker. These pages ask this host only, so the picture is left out. */
"use strict";

(() => {
  const picture = HTMLImageElement.prototype;
  const isLeftOut = (image, value) => {
    const elsewhere = String(value).startsWith("https://cdn.redoc.ly/");
    if (elsewhere) image.style.display = "none";
    return elsewhere;
  };
  const { get, set } = Object.getOwnPropertyDescriptor(picture, "src");
  const { setAttribute } = picture;
  Object.defineProperty(picture, "src", {
    get,
    set(value) {
      if (!isLeftOut(this, value)) set.call(this, value);
    },
  });
  picture.setAttribute = function (name, value) {
    if (name !== "src" || !isLeftOut(this, value)) setAttribute.call(this, name, value);
  };
})();
