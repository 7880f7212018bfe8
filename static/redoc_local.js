/* ReDoc shows its maker's logo, fetched from its maker. These pages ask this host only, so the picture is left out. */
"use strict";

(() => {
  const picture = HTMLImageElement.prototype;
  const isElsewhere = (value) => String(value).startsWith("https://cdn.redoc.ly/");
  const { get, set } = Object.getOwnPropertyDescriptor(picture, "src");
  const { setAttribute } = picture;
  Object.defineProperty(picture, "src", {
    get,
    set(value) {
      if (!isElsewhere(value)) set.call(this, value);
    },
  });
  picture.setAttribute = function (name, value) {
    if (name !== "src" || !isElsewhere(value)) setAttribute.call(this, name, value);
  };
})();
