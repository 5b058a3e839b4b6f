// Sets the theme before the first paint. A classic script on purpose: a module would run too late and flash.

(function () {
  let choice = null;
  try {
    choice = localStorage.getItem("fedarena.theme");
  } catch (error) {
    console.info("The theme is not remembered because storage is blocked.", error);
  }
  if (choice === "light" || choice === "dark") document.documentElement.dataset.theme = choice;
})();
